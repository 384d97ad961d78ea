# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Memory does not grow with the cache: 100 MB and 2 GB need the same.

Input is made while it is sent, so nothing here holds a cache either. What is asserted
is the peak of the resident memory of a fresh process, as the kernel counted it.
"""

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import grpc
import numpy as np
import pytest
from process_memory import peak

from kvcompress.v1 import compression_service_pb2 as pb
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub
from oracle.server import running_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MIB = 1 << 20
SMALL, LARGE = 100 * MIB, 2048 * MIB
TENSOR = 4 * MIB
CHUNK = MIB
# The cache grows by 1,948 MiB. What may grow with it: per-tensor records (some KiB for
# 512 tensors), and what the allocator keeps, which depends on the timing of threads.
GROWTH = 48 * MIB
# The whole of it, libraries included: a container of 256 MiB has headroom.
PEAK = 200 * MIB


def header_of(shapes: Mapping[str, Sequence[int]]) -> bytes:
    """The beginning of a safetensors file of BF16 tensors of these shapes."""
    entries = {}
    begin = 0
    for name, shape in shapes.items():
        end = begin + 2 * math.prod(shape)
        entries[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


def header(size: int) -> bytes:
    """The beginning of a safetensors file of BF16 tensors, `size` bytes in all."""
    names = [f"layer_{i // 2}_{('key', 'value')[i % 2]}" for i in range(size // TENSOR)]
    return header_of({name: [1, 8, TENSOR // 2048, 128] for name in names})


def block() -> bytes:
    """A chunk of values like those of a cache."""
    values = np.random.default_rng(1).standard_normal(CHUNK // 2).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype("<u2").tobytes()


def write_cache(path: Path, size: int) -> None:
    """Writes a cache of this size."""
    data = block()
    with path.open("wb") as file:
        file.write(header(size))
        for _ in range(size // CHUNK):
            file.write(data)


def judge(name: str, small: int, large: int) -> None:
    """Holds two peaks against the bounds, and says what they are."""
    print(f"{name}: {small / MIB:.0f} MiB for 100 MiB, {large / MIB:.0f} MiB for 2 GiB")
    assert large - small < GROWTH
    assert large < PEAK


def artefact_of(bin_dir: Path, size: int, artefact: Path) -> int:
    """Compresses a cache of this size on a fresh server; returns the server's peak."""

    def requests() -> Iterator[pb.CompressRequest]:
        yield pb.CompressRequest(options=pb.CompressOptions(codec="int4"))
        yield pb.CompressRequest(safetensors=header(size))
        data = pb.CompressRequest(safetensors=block())
        for _ in range(size // CHUNK):
            yield data

    with running_server(bin_dir) as server, grpc.insecure_channel(server.target) as channel:
        trailer = None
        with artefact.open("wb") as file:
            for response in CompressionServiceStub(channel).Compress(requests(), timeout=600):
                if response.HasField("artefact"):
                    file.seek(response.artefact.offset)
                    file.write(response.artefact.data)
                elif response.HasField("trailer"):
                    trailer = response.trailer
        assert trailer is not None
        assert trailer.original_size_bytes == size
        return peak(server.process.pid)


def restoring(bin_dir: Path, artefact: Path, size: int) -> int:
    """Restores an artefact on a fresh server; returns the server's peak."""

    def requests() -> Iterator[pb.DecompressRequest]:
        yield pb.DecompressRequest(options=pb.DecompressOptions())
        with artefact.open("rb") as file:
            while data := file.read(CHUNK):
                yield pb.DecompressRequest(artefact=data)

    with running_server(bin_dir) as server, grpc.insecure_channel(server.target) as channel:
        trailer = None
        for response in CompressionServiceStub(channel).Decompress(requests(), timeout=600):
            if response.HasField("trailer"):
                trailer = response.trailer
        assert trailer is not None
        assert trailer.original_size_bytes == size
        return peak(server.process.pid)


def test_server(bin_dir: Path) -> None:
    """The server, compressing and restoring."""
    with tempfile.TemporaryDirectory() as folder:
        artefacts = {size: Path(folder) / str(size) for size in (SMALL, LARGE)}
        compressing = {s: artefact_of(bin_dir, s, path) for s, path in artefacts.items()}
        restored = {s: restoring(bin_dir, path, s) for s, path in artefacts.items()}
    judge("server, compressing", compressing[SMALL], compressing[LARGE])
    judge("server, restoring", restored[SMALL], restored[LARGE])


def command_line(bin_dir: Path, *arguments: object) -> int:
    """Runs kv-compress with the service inside; returns its peak."""
    command = [bin_dir / "kv-compress", *arguments]
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("peak"), *map(str, command)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_command_line(bin_dir: Path) -> None:
    """The client and the service in one process, from file to file."""
    compressing, restored = {}, {}
    for size in (SMALL, LARGE):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            cache, artefact = folder / "cache", folder / "artefact"
            write_cache(cache, size)
            compressing[size] = command_line(bin_dir, "-input", cache, "-output", artefact)
            cache.unlink()
            arguments = ["-decompress", "-input", artefact, "-output", folder / "restored"]
            restored[size] = command_line(bin_dir, *arguments)
    judge("kv-compress, compressing", compressing[SMALL], compressing[LARGE])
    judge("kv-compress, restoring", restored[SMALL], restored[LARGE])
