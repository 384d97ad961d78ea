# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`lossless`: the service, the oracle and kvcompress.payload, down to the last bit."""

import struct
from pathlib import Path

import numpy as np
import pytest

from kvcompress import Client, DataLossError, InvalidArgumentError, payload
from kvcompress.v1 import compression_service_pb2 as service_pb2
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub
from oracle import caches, encoder, lossless
from oracle.fixtures import SAMPLE
from oracle.raw import chunks
from oracle.source import ITEM_SIZE, NUMBERS, Tensor, read, tensor, write

CACHES = caches.all_caches()


def random_bits(dtype: str, count: int, seed: int = 0) -> Tensor:
    """Elements of any bit pattern: NaN of every payload, infinities, zeros of both signs."""
    data = np.random.default_rng(seed).bytes(count * ITEM_SIZE[dtype])
    return Tensor(f"{dtype}_{count}", dtype, (count,), data)


def specials() -> bytes:
    """Every 16-bit pattern, tensors around the size of a block, widened and constant ones."""
    rng = np.random.default_rng(5)
    every = np.arange(65536, dtype="<u2")
    tensors = [
        Tensor(f"every_{dtype}", dtype, (65536,), every.tobytes()) for dtype in ("F16", "BF16")
    ]
    wide = (every.astype("<u4") << 16).tobytes()
    tensors.append(Tensor("every_BF16_wide", "F32", (65536,), wide))
    half = every.view("<f2").astype("<f4").tobytes()
    tensors.append(Tensor("every_F16_wide", "F32", (65536,), half))
    tensors += [random_bits(dtype, 700) for dtype in ITEM_SIZE]
    tensors.append(Tensor("every_F8_E4M3", "F8_E4M3", (65536 * 2,), every.tobytes()))
    doubles = rng.standard_normal(70000) * 2.0 ** rng.integers(-300, 300, 70000)
    tensors.append(Tensor("doubles", "F64", (70000,), doubles.astype("<f8").tobytes()))
    for dtype in NUMBERS:
        for count in (1, 2, 3, 17, 1000):
            tensors.append(random_bits(dtype, count))
        for count in (65535, 65537):
            tensors.append(tensor(f"{dtype}_{count}", dtype, rng.standard_normal(count)))
        tensors.append(tensor(f"{dtype}_zeros", dtype, np.zeros(70000)))
        skewed = rng.standard_normal(5000) * 2.0 ** rng.integers(-14, 3, 5000)
        tensors.append(tensor(f"{dtype}_skewed", dtype, skewed))
    mixed = rng.standard_normal(20000).astype(np.float32)
    mixed[100:].view(np.uint32)[...] &= np.uint32(0xFFFF0000)
    tensors.append(Tensor("mostly_wide", "F32", (20000,), mixed.tobytes()))
    return write(tensors)


CACHES["specials"] = specials()


@pytest.mark.parametrize("name", CACHES)
def test_bytes_and_bits(client: Client, name: str) -> None:
    want = encoder.encode(CACHES[name], None, {"tenant": "ü"}, codec="lossless")
    got = client.compress(CACHES[name], codec="lossless", labels={"tenant": "ü"}, reconstruct=True)
    assert got.artefact == want.data
    assert got.reconstructed == want.restored
    assert client.decompress(want.data).safetensors == want.restored
    arrays = payload.read(want.data)
    for each, report in zip(want.tensors, got.report.tensors, strict=True):
        assert each.decoded == each.source.data
        array = arrays[each.source.name]
        assert (array.tobytes(), array.shape) == (each.source.data, each.source.shape)
        most = payload.payload_size("lossless", each.source.shape, each.source.dtype)
        assert len(each.payload) <= most
        assert report.codec == "lossless"
        assert report.compressed_size_bytes == len(each.payload)


@pytest.mark.parametrize("name", CACHES)
def test_metrics_are_those_of_an_exact_copy(client: Client, name: str) -> None:
    report = client.measure(CACHES[name], codec="lossless")
    assert report.verdict.passed
    assert report.tensors_failed == 0
    for metrics in (report.metrics, *(each.metrics for each in report.tensors)):
        errors = (metrics.mse, metrics.rmse, metrics.mae, metrics.max_error)
        assert errors == (0, 0, 0, 0)
        assert (metrics.snr_db, metrics.psnr_db, metrics.cosine_similarity) == (None, None, 1)


def test_sample(client: Client, sample: bytes, tmp_path: Path) -> None:
    small, restored = tmp_path / "small.safetensors", tmp_path / "restored.safetensors"
    report = client.compress(SAMPLE, small, codec="lossless").report
    assert report.compression_ratio >= 1.47
    want = encoder.encode(sample, None, codec="lossless")
    assert small.read_bytes() == want.data
    client.decompress(small, restored)
    before, after = read(sample), read(restored.read_bytes())
    assert before == after
    arrays = payload.read(small)
    assert [array.tobytes() for array in arrays.values()] == [each.data for each in before[0]]


def test_widened_sample(client: Client, sample: bytes) -> None:
    wide = write(
        Tensor(each.name, "F32", each.shape, each.values.tobytes()) for each in read(sample)[0]
    )
    result = client.compress(wide, codec="lossless")
    assert result.report.original_size_bytes / result.report.compressed_size_bytes >= 2.9
    assert client.decompress(result.artefact or b"").safetensors == wide


def test_takes_neither_groups_nor_presets(client: Client) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        client.compress(CACHES["tiny"], codec="lossless:group_size=64")
    assert caught.value.field == "options.codec"
    with pytest.raises(InvalidArgumentError) as caught:
        client.compress(CACHES["tiny"], codec="lossless:max")
    assert caught.value.field == "options.codec"


def sealed(data: bytes, count: int) -> bytes:
    """Makes an artefact of one payload, whatever it holds, with every digest right."""
    source = Tensor("x", "BF16", (count,), bytes(2 * count))
    digest = encoder.EncodedTensor(source, data, b"", "").digest
    return encoder.assemble(
        [("x", data)],
        {
            "kvcompress.checksum": f"xxh3-128:{encoder.ZEROS}",
            "kvcompress.format": "1",
            "kvcompress.layout": "bhtd",
            "kvcompress.tensors": f"lossless BF16 {count} - {digest}",
        },
        [lossless.largest(source)],
    )


def refused(client: Client, data: bytes) -> None:
    """Both readers must find the damage and name the tensor."""
    with pytest.raises(payload.PayloadError) as offline:
        payload.read(data)
    assert (offline.value.code, offline.value.tensor) == ("DATA_LOSS", "x")
    with pytest.raises(DataLossError) as caught:
        client.decompress(data)
    assert (caught.value.reason, caught.value.tensor) == ("PAYLOAD_DAMAGED", "x")


def good() -> bytes:
    """A payload of 300 elements whose first plane is coded."""
    values = np.random.default_rng(1).standard_normal(300)
    return lossless.encode_tensor(tensor("x", "BF16", values))


def test_payload_is_read_when_the_digests_are_right(client: Client) -> None:
    data = sealed(good(), 300)
    want = payload.read(data)["x"]
    assert client.decompress(data).safetensors is not None
    assert want.shape == (300,)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 50, 72, 100, -301, -2, -1])
def test_cut_payload(client: Client, size: int) -> None:
    refused(client, sealed(good()[:size], 300))


@pytest.mark.parametrize("more", [b"\0", b"\0\0", bytes(100)])
def test_payload_that_goes_on(client: Client, more: bytes) -> None:
    refused(client, sealed(good() + more, 300))


def with_first_plane(coded: bytes, count: int = 300) -> bytes:
    """A payload with these coded bytes for a first plane."""
    return sealed(struct.pack("<2I", len(coded), 1) + coded + b"\0", count)


STATES = struct.pack("<16I", *[65536] * 16)
MODEL = lossless.write_model([4096] + [0] * 255)
DAMAGED = {
    "no model": b"\0\0",
    "model of another sum": b"\x8f\xff\x00\xfe" + STATES,
    "model beyond the last value": b"\x90\x00\x00\xff" + STATES,
    "model with a run in parts": b"\x90\x00\x00\x03\x00\xfa" + STATES,
    "model with a long form too many": b"\x8f\xff\x80\x01\x00\xfd" + STATES,
    "states cut": MODEL + STATES[:-1],
    "state too low": MODEL + struct.pack("<I", 65535) + STATES[4:],
    "state that does not end": MODEL + struct.pack("<I", 65537) + STATES[4:],
    "half a word": MODEL + STATES + b"\0",
    "word left over": MODEL + STATES + b"\0\0",
    "words missing": lossless.write_model([1, 4095] + [0] * 254) + STATES,
}


def test_one_value_may_be_coded(client: Client) -> None:
    data = with_first_plane(MODEL + STATES)
    assert not payload.read(data)["x"].astype(np.float32).any()
    client.decompress(data)


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_coded_bytes_under_right_digests(client: Client, name: str) -> None:
    refused(client, with_first_plane(DAMAGED[name]))


@pytest.mark.parametrize("sizes", [(0, 300), (1, 301), (301, 1), (2**32 - 1, 1), (2, 300)])
def test_sizes_that_break_the_format(client: Client, sizes: tuple[int, int]) -> None:
    refused(client, sealed(struct.pack("<2I", *sizes) + b"x" * 400, 300))


def test_block_that_ends_with_other_bytes_than_zeros(client: Client) -> None:
    zeros = lossless.encode_tensor(tensor("x", "BF16", np.zeros(1000)))
    assert len(zeros) == 63
    client.decompress(sealed(zeros, 1000))
    refused(client, sealed(zeros[:-1] + b"\1", 1000))


def test_zeros_come_back_in_messages_of_at_most_1_mib(
    client: Client, stub: CompressionServiceStub
) -> None:
    zeros = write([tensor("x", "F32", np.zeros(8_000_000))])
    artefact = client.compress(zeros, codec="lossless").artefact
    assert artefact is not None
    assert len(artefact) < len(zeros) / 60
    requests = [service_pb2.DecompressRequest(options=service_pb2.DecompressOptions())]
    requests += [service_pb2.DecompressRequest(artefact=each) for each in chunks(artefact, 1 << 22)]
    sizes = [
        len(response.safetensors.data)
        for response in stub.Decompress(iter(requests), timeout=120)
        if response.WhichOneof("message") == "safetensors"
    ]
    assert sum(sizes) == len(zeros)
    assert max(sizes) <= 1 << 20


def test_flipped_bits_in_the_payload(client: Client) -> None:
    data = good()
    right = payload.read(sealed(data, 300))["x"].tobytes()
    for position in range(0, len(data), 3):
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        artefact = sealed(bytes(flipped), 300)
        try:
            offline = payload.read(artefact)["x"].tobytes()
        except payload.PayloadError:
            refused(client, artefact)
            continue
        assert offline != right
        restored = client.decompress(artefact).tensors
        assert restored is not None
        assert restored["x"].tobytes() == offline
