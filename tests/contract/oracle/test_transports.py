# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The same bytes, however a cache comes and goes."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from kvcompress import Array, Client
from kvcompress.v1 import compression_service_pb2 as service_pb2
from kvcompress.v1 import tensor_pb2
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub
from oracle import caches, encoder, raw, source
from oracle.fixtures import SAMPLE
from oracle.server import Server

SIZES = [1, 7, 8, 9, 4095, 1 << 20]
SMALL = source.write(
    source.read(caches.tiny())[0] + source.read(caches.shapes("BF16"))[0][:13], {"a": "1", "b": "2"}
)


def run(bin_dir: Path, *arguments: str) -> dict[str, object]:
    """Runs kv-compress and returns its JSON."""
    environment = {key: value for key, value in os.environ.items() if "KVCOMPRESS" not in key}
    done = subprocess.run(
        [str(bin_dir / "kv-compress"), *arguments],
        capture_output=True,
        timeout=120,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


def test_tcp_unix_and_cli_agree(
    server: Server, bin_dir: Path, sample: bytes, tmp_path: Path
) -> None:
    want = encoder.encode(sample, 64)
    for index, target in enumerate((server.target, server.unix_target)):
        with Client(target, timeout=60) as client:
            path, back = tmp_path / f"python{index}", tmp_path / f"python{index}.back"
            client.compress(SAMPLE, path, codec="int4")
            client.decompress(path, back)
            assert path.read_bytes() == want.data
            assert back.read_bytes() == want.restored
    addresses: list[list[str]] = [[], ["-server", server.target], ["-server", server.unix_target]]
    for index, where in enumerate(addresses):
        path, back = tmp_path / f"cli{index}", tmp_path / f"cli{index}.back"
        there = ["-input", str(SAMPLE), "-output", str(path), "-codec", "int4"]
        report = run(bin_dir, *there, *where)
        run(bin_dir, "-decompress", "-input", str(path), "-output", str(back), *where)
        assert path.read_bytes() == want.data
        assert back.read_bytes() == want.restored
        assert report["compressed_size_bytes"] == len(want.data)
        assert report["payload_digest"] == want.checksum


@pytest.mark.parametrize("size", SIZES)
def test_chunks_of_any_size(stub: CompressionServiceStub, size: int) -> None:
    want = encoder.encode(SMALL, 32, {"k": "v"})
    options = service_pb2.CompressOptions(codec="int4:32", labels={"k": "v"}, reconstruct=True)
    for requests in (
        raw.file_requests(SMALL, size, options),
        raw.tensor_requests(SMALL, size, options),
        raw.tensor_requests(SMALL, size, options, named=False),
    ):
        answer = raw.compress(stub, requests)
        assert bytes(answer.artefact) == want.data
        assert bytes(answer.reconstructed) == want.restored
    restored, report = raw.decompress(stub, want.data, size)
    assert restored == want.restored
    assert report.payload_digest == want.checksum


@pytest.mark.parametrize("size", [4095, 1 << 20])
def test_sample_in_chunks(stub: CompressionServiceStub, sample: bytes, size: int) -> None:
    want = encoder.encode(sample, 64)
    assert bytes(raw.compress(stub, raw.file_requests(sample, size)).artefact) == want.data
    assert raw.decompress(stub, want.data, size)[0] == want.restored


def test_order_of_the_answer(stub: CompressionServiceStub, sample: bytes) -> None:
    want = encoder.encode(sample, 64)
    answer = raw.compress(stub, raw.file_requests(sample, 1 << 16))
    assert answer.kinds == ["begin", "artefact", "trailer"]
    assert answer.begin.reserved_header_bytes == want.header_size
    assert answer.begin.codec == "int4:64"
    assert answer.begin.tensor_count == 60
    assert answer.begin.original_size_bytes == answer.trailer.original_size_bytes
    body = [offset for offset, _ in answer.offsets if offset >= want.header_size]
    head = [offset for offset, _ in answer.offsets if offset < want.header_size]
    assert body == sorted(body)
    assert head[0] == 0
    assert [offset for offset, _ in answer.offsets] == body + head
    assert sum(size for _, size in answer.offsets) == len(want.data)


def test_artefact_leaves_while_input_arrives(stub: CompressionServiceStub, sample: bytes) -> None:
    arrived, size = threading.Event(), 0

    def requests() -> Iterator[service_pb2.CompressRequest]:
        half = len(sample) // 2
        yield from raw.file_requests(sample[:half], 1 << 15)
        assert arrived.wait(30)
        for chunk in raw.chunks(sample[half:], 1 << 15):
            yield service_pb2.CompressRequest(safetensors=chunk)

    for response in stub.Compress(requests(), timeout=60):
        if response.WhichOneof("message") == "artefact":
            arrived.set()
            size += len(response.artefact.data)
    assert size == len(encoder.encode(sample).data)


def test_declared_roles(stub: CompressionServiceStub) -> None:
    tensors = [source.tensor(name, "F32", [1.0, 2.0]) for name in ("a", "b", "layer_3_key", "c")]
    table = tensor_pb2.TensorTable()
    declared = (
        {"role": tensor_pb2.TENSOR_ROLE_KEY, "layer": 4294967295},
        {"role": tensor_pb2.TENSOR_ROLE_VALUE},
        {"role": tensor_pb2.TENSOR_ROLE_VALUE},
        {"layer": 0},
    )
    for each, more in zip(tensors, declared, strict=True):
        table.tensors.add(name=each.name, dtype=tensor_pb2.DATA_TYPE_F32, shape=each.shape, **more)  # type: ignore[arg-type]

    def requests() -> Iterator[service_pb2.CompressRequest]:
        yield service_pb2.CompressRequest(options=service_pb2.CompressOptions(codec="int4"))
        yield service_pb2.CompressRequest(tensors=table)
        for each in tensors:
            chunk = tensor_pb2.TensorChunk(data=each.data)
            yield service_pb2.CompressRequest(tensor_data=chunk)

    roles = {"a": "k4294967295", "b": "v", "layer_3_key": "v3", "c": "-0"}
    want = encoder.encode(source.write(tensors), 64, roles=roles)
    assert bytes(raw.compress(stub, requests()).artefact) == want.data


# The larger one goes as a table, which the smaller one becomes the file of.
@pytest.mark.parametrize("elements", [3, 1 << 18])
def test_metadata_of_tensors_is_sorted(client: Client, elements: int) -> None:
    arrays = {"x": np.ones(elements, np.float32)}
    metadata = {key: key for key in ("z", "", "a", "ü", "Z", "a.b", "10", "9")}
    ordered = sorted(metadata.items(), key=lambda item: item[0].encode())
    want = encoder.encode(source.write([source.tensor("x", "F32", arrays["x"])], ordered))
    assert client.compress(arrays, metadata=metadata, codec="int4").artefact == want.data


def test_arrays(client: Client) -> None:
    rng = np.random.default_rng(5)
    arrays: dict[str, Array] = {
        "layer_0_key": rng.standard_normal((1, 2, 300, 64)).astype(np.float32),
        "layer_0_value": rng.standard_normal((1, 2, 300, 64)).astype(np.float16),
        "layer_1_key": rng.standard_normal((1, 2, 9, 64)).astype(ml_dtypes.bfloat16),
        "big_endian": rng.standard_normal((3, 5)).astype(">f4"),
        "strided": rng.standard_normal((6, 8)).astype(np.float16).T[::2, 1::2],
        "scalar": np.array(2.5, np.float32),
        "empty": np.zeros((2, 0, 3), np.float16),
    }
    names = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
    file = source.write(
        [
            source.Tensor(
                name,
                names[array.dtype.name],
                array.shape,
                array.astype(array.dtype.newbyteorder("<")).tobytes(),
            )
            for name, array in arrays.items()
        ],
        {"m": "1"},
    )
    want = encoder.encode(file, 128)
    got = client.compress(arrays, codec="int4:128", metadata={"m": "1"})
    assert got.artefact == want.data
    back = client.decompress(want.data)
    assert back.metadata == {"m": "1"}
    assert back.tensors is not None
    for each in want.tensors:
        array = back.tensors[each.source.name]
        assert array.dtype == arrays[each.source.name].dtype.newbyteorder("<")
        assert array.shape == arrays[each.source.name].shape
        assert array.tobytes() == each.decoded
    assert client.measure(arrays, metadata={"m": "1"}, codec="int4").metrics.elements == sum(
        array.size for array in arrays.values()
    )
