# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests against the real binaries; a conftest.py imports them."""

import os
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from kvcompress import Client
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub
from oracle.server import Server, running_server

REPOSITORY = Path(__file__).resolve().parents[3]
SAMPLE = REPOSITORY / "tests" / "data" / "smollm2_kjv_96_bf16.safetensors"


@pytest.fixture(scope="session")
def bin_dir() -> Path:
    """Directory of kv-compressd and kv-compress: $KVCOMPRESS_BIN_DIR, or bin/."""
    directory = Path(os.environ.get("KVCOMPRESS_BIN_DIR", REPOSITORY / "bin"))
    if not (directory / "kv-compressd").exists():
        pytest.fail(f"no kv-compressd in {directory}: build first, or set KVCOMPRESS_BIN_DIR")
    return directory


@pytest.fixture(autouse=True)
def service(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every test below a conftest.py that imports this use the binaries under test."""
    monkeypatch.delenv("KVCOMPRESS_SERVER", raising=False)
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir))
    monkeypatch.setenv("KV_COMPRESS_PATH", str(bin_dir / "kv-compress"))


@pytest.fixture(scope="session")
def server(bin_dir: Path) -> Iterator[Server]:
    """A server that all tests of the session share."""
    with running_server(bin_dir) as running:
        yield running


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[Client]:
    """The Python client of that server, over TCP."""
    with Client(server.target, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def stub(server: Server) -> Iterator[CompressionServiceStub]:
    """The generated stub of that server, over TCP."""
    options = (("grpc.max_receive_message_length", -1),)
    with grpc.insecure_channel(server.target, options) as channel:
        yield CompressionServiceStub(channel)


@pytest.fixture(scope="session")
def sample() -> bytes:
    """The real cache of the repository: BF16, 60 tensors of [1, 3, 96, 64]."""
    return SAMPLE.read_bytes()
