# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`ecsq`: the service and kvcompress.payload give the same bits, and keep what they promise."""

import math
import random
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import xxhash

from kvcompress import Array, Client, InvalidArgumentError, KVCompressError, payload
from oracle import caches, encoder, metrics
from oracle.source import Tensor, read, tensor, widen, write

PRESETS = ("contract", "high", "max", "0.05,8")
Values = npt.NDArray[np.float32]


def cache(shape: tuple[int, ...], seed: int = 0, *, norms: bool = False) -> Values:
    """Channels with means and widths of their own, and tokens with norms of their own."""
    rng = np.random.default_rng(seed)
    channels = shape[-1] if len(shape) > 1 else 1
    values = rng.standard_normal(shape) * rng.uniform(0.1, 2, channels)
    values += 2 * rng.standard_normal(channels)
    if norms:
        values *= np.exp2(rng.uniform(-1, 1, (*shape[:-1], 1)))
    return values.astype(np.float32)


def rotated(values: Values, theta: float, *, interleaved: bool) -> Values:
    """Turns each pair of channels by its token's position."""
    tokens, channels = values.shape[-2:]
    pairs = channels // 2
    angles = np.arange(tokens)[:, None] * theta ** (-np.arange(pairs) / pairs)
    one = slice(0, None, 2) if interleaved else slice(0, pairs)
    other = slice(1, None, 2) if interleaved else slice(pairs, None)
    turned = values.copy()
    a, b = values[..., one], values[..., other]
    turned[..., one] = a * np.cos(angles) - b * np.sin(angles)
    turned[..., other] = b * np.cos(angles) + a * np.sin(angles)
    return turned


def shapes(dtype: str) -> bytes:
    """Tensors of many shapes, and some that are hard."""
    tensors = []
    for tokens in (1, 7, 63, 64, 65, 513):
        tensors.append(tensor(f"layer_{tokens}_key", dtype, cache((1, 2, tokens, 64))))
        values = cache((1, 2, tokens, 64), norms=True)
        tensors.append(tensor(f"layer_{tokens}_value", dtype, values))
    for channels in (1, 2, 80, 96, 128, 256):
        tensors.append(tensor(f"layer_1{channels}_key", dtype, cache((2, 3, 33, channels))))
        values = cache((2, 3, 33, channels), norms=True)
        tensors.append(tensor(f"layer_1{channels}_value", dtype, values))
    long = cache((1, 2, 2100, 8), norms=True)
    tensors.append(tensor("layer_4000_value", dtype, long))
    many = cache((1, 300, 2, 40))
    tensors.append(tensor("layer_4001_key", dtype, many))
    for name, interleaved in (("layer_5000_key", False), ("layer_5001_key", True)):
        keys = rotated(cache((1, 2, 200, 64), 3), 500000, interleaved=interleaved)
        tensors.append(tensor(name, dtype, keys))
    outliers = cache((1, 2, 200, 64), 4)
    outliers.reshape(-1)[[0, 999, 25599]] = 65504
    tensors.append(tensor("layer_6000_key", dtype, outliers))
    tensors.append(tensor("layer_6000_value", dtype, outliers))
    wide = cache((1, 1, 300, 64), 5)
    wide[..., 0] *= 500
    tensors.append(tensor("layer_6001_key", dtype, wide))
    tensors.append(tensor("layer_6002_key", dtype, 100 * cache((1, 1, 64, 64), 6)))
    tensors.append(tensor("layer_6003_value", dtype, np.full((1, 1, 64, 64), 3)))
    tensors.append(tensor("layer_6004_value", dtype, np.zeros((1, 1, 64, 64))))
    for shape in ((), (0,), (1,), (700,), (700, 3), (3, 30, 8), (2, 1, 3, 9, 8), (1, 3, 0, 64)):
        tensors.append(tensor(f"plain {shape}", dtype, cache(shape)))
    return write(tensors)


CACHES: dict[str, Callable[[], bytes]] = {
    "F32": lambda: shapes("F32"),
    "F16": lambda: shapes("F16"),
    "BF16": lambda: shapes("BF16"),
    "mixed": caches.mixed,
    "tiny": caches.tiny,
}


def decoded(artefact: bytes) -> dict[str, Values]:
    """Decodes with kvcompress.payload, to float32."""
    header, arrays = payload.read_header(artefact), payload.read(artefact)
    return {each.name: widen(each.dtype, arrays[each.name].tobytes()) for each in header.tensors}


def sources(data: bytes) -> list[Tensor]:
    """The tensors of a file."""
    return read(data)[0]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", CACHES)
def test_same_bits(client: Client, name: str, preset: str) -> None:
    source = CACHES[name]()
    got = client.compress(source, codec=f"ecsq:{preset}", reconstruct=True)
    assert got.report.codec == f"ecsq:{preset}"
    restored = client.decompress(got.artefact or b"").safetensors
    assert restored == got.reconstructed
    arrays = payload.read(got.artefact or b"")
    for each in sources(restored or b""):
        assert arrays[each.name].tobytes() == each.data, each.name
    for each, report in zip(sources(source), got.report.tensors, strict=True):
        most = payload.payload_size(f"ecsq:{preset}", each.shape, each.dtype)
        assert report.compressed_size_bytes <= most
        count = math.prod(each.shape)
        assert most == (1 + count + 2 * -(-count // 64) if count else 0)


def test_metrics_are_those_of_what_is_restored(client: Client) -> None:
    source = shapes("BF16")
    got = client.compress(source, codec="ecsq:high")
    values = decoded(got.artefact or b"")
    for each, report in zip(sources(source), got.report.tensors, strict=True):
        want = metrics.measure([(each.values, values[each.name])])
        assert report.metrics.max_error == want.max_error
        assert report.metrics.rmse == pytest.approx(want.rmse, rel=1e-9)


@pytest.mark.parametrize(("preset", "ratio"), [("contract", 4.2), ("high", 4.4), ("max", 5.6)])
def test_the_real_cache(client: Client, sample: bytes, preset: str, ratio: float) -> None:
    got = client.compress(sample, codec=f"ecsq:{preset}", reconstruct=True)
    assert len(got.artefact or b"") < len(sample) / ratio
    arrays = payload.read(got.artefact or b"")
    for each in sources(got.reconstructed or b""):
        assert arrays[each.name].tobytes() == each.data, each.name
    if preset == "contract":
        assert all(report.verdict.passed for report in got.report.tensors)


def test_the_hint_is_what_detection_finds(client: Client) -> None:
    keys = rotated(cache((1, 2, 200, 64), 3), 500000, interleaved=False)
    file = {"layer_0_key": keys}
    artefacts = [
        client.compress(file, codec="ecsq:high", metadata=metadata).artefact or b""
        for metadata in ({}, {"rope_theta": "500000.0"}, {"rope_theta": "0"})
    ]
    found, hinted, without = (
        data[entry.begin : entry.end]
        for data in artefacts
        for entry in payload.read_header(data).tensors
    )
    assert found == hinted
    assert (found[1] & 2, without[1] & 2) == (2, 0)


def resealed(good: bytes, bad: bytes) -> bytes:
    """Makes the digests right of an artefact whose payloads were changed."""
    header = payload.read_header(good)
    size = header.tensors[0].begin
    head = good[:size]
    for entry in header.tensors:
        digest = xxhash.xxh3_128_hexdigest(bad[entry.begin : entry.end])
        head = head.replace(entry.digest.encode(), digest.encode())
    return encoder.seal(head) + bad[size:]


def read_offline(data: bytes) -> dict[str, Array] | payload.PayloadError:
    """Reads an artefact with kvcompress.payload; returns the error when it is refused."""
    try:
        return payload.read(data)
    except payload.PayloadError as error:
        return error


def test_damage_is_found_alike(client: Client) -> None:
    source = write(
        [
            tensor("layer_0_key", "F16", rotated(cache((1, 2, 40, 24)), 1e4, interleaved=False)),
            tensor("layer_0_value", "F16", cache((1, 2, 40, 24), norms=True)),
        ]
    )
    good = client.compress(source, codec="ecsq:max").artefact or b""
    rng = random.Random(5)
    accepted = 0
    entries = payload.read_header(good).tensors
    for _ in range(300):
        entry = rng.choice(entries)
        bad = bytearray(good)
        for _ in range(rng.choice([1, 2])):
            size = rng.choice([entry.end - entry.begin, 60])
            bad[entry.begin + rng.randrange(size)] = rng.randrange(256)
        data = resealed(good, bytes(bad))
        offline = read_offline(data)
        if isinstance(offline, payload.PayloadError):
            with pytest.raises(KVCompressError) as caught:
                client.decompress(data)
            assert (offline.code, caught.value.code) == ("DATA_LOSS", "DATA_LOSS")
            want = ("PAYLOAD_DAMAGED", offline.tensor)
            assert (caught.value.reason, caught.value.tensor) == want
            continue
        accepted += 1
        for each in sources(client.decompress(data).safetensors or b""):
            assert offline[each.name].tobytes() == each.data
    assert 0 < accepted < 150


@pytest.mark.parametrize("preset", ["low", "0.5", "0.50,x", "9,1", "1,1,1"])
def test_unknown_presets(client: Client, preset: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        client.compress({"a": np.ones(3, np.float32)}, codec=f"ecsq:{preset}")
    assert (caught.value.reason, caught.value.field) == ("INVALID_CODEC_OPTION", "options.codec")


def test_not_finite(client: Client) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        client.compress({"a": np.array([1, np.nan], np.float32)}, codec="ecsq")
    assert (caught.value.reason, caught.value.tensor, caught.value.element) == (
        "NOT_FINITE",
        "a",
        1,
    )
