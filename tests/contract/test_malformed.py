# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Malformed input is refused, says why and where, and harms nobody else.

Each file of the corpus goes through the command line, with the service inside the
process, and through a server. As a control the reference library has to refuse what
breaks its format, and everything has to take the unusual files that do not.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import safetensors
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from malformed import CASES, CONTROLS, Case

from kvcompress.v1 import compression_service_pb2 as pb
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub
from oracle.reference import deserialize

DOMAIN = "kvcompress.v1"
SECONDS = 30

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_control = pytest.mark.parametrize("data", CONTROLS.values(), ids=CONTROLS)


def requests(data: bytes, chunk: int) -> Iterator[pb.CompressRequest]:
    """A Compress request with the file in chunks of this size."""
    yield pb.CompressRequest(options=pb.CompressOptions(codec="int4"))
    for begin in range(0, len(data), chunk):
        yield pb.CompressRequest(safetensors=data[begin : begin + chunk])


def compress(stub: CompressionServiceStub, data: bytes, chunk: int) -> bytes:
    """Compresses and puts the artefact together."""
    chunks: dict[int, bytes] = {}
    trailers = 0
    for response in stub.Compress(requests(data, chunk), timeout=SECONDS):
        if response.WhichOneof("message") == "artefact":
            chunks[response.artefact.offset] = response.artefact.data
        trailers += response.HasField("trailer")
    assert trailers == 1
    return b"".join(chunks[offset] for offset in sorted(chunks))


def details(error: grpc.RpcError) -> error_details_pb2.ErrorInfo:
    """The one ErrorInfo of an error."""
    assert isinstance(error, grpc.Call)
    binary = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    assert isinstance(binary, bytes), "no grpc-status-details-bin"
    status = status_pb2.Status.FromString(binary)
    assert status.message == error.details()
    found = []
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            found.append(info)
    assert len(found) == 1
    return found[0]


def by_library(data: bytes) -> list[tuple[str, str, list[int]]]:
    """Name, type and shape of the tensors that the reference library finds, sorted."""
    tensors = deserialize(data)
    return sorted((name, fields["dtype"], fields["shape"]) for name, fields in tensors.items())


def refused_by_library(data: bytes) -> bool:
    """Whether the reference library refuses the file."""
    try:
        by_library(data)
    except safetensors.SafetensorError:
        return True
    return False


def test_the_corpus_is_what_it_says() -> None:
    """Names are unique, the files small."""
    assert len({case.name for case in CASES}) == len(CASES) > 100
    assert sum(len(case.data) for case in CASES) < 2 << 20


@every_case
def test_reference_library(case: Case) -> None:
    """It agrees with the corpus on what breaks the format."""
    assert refused_by_library(case.data) == case.library_refuses


@every_case
def test_command_line_refuses(bin_dir: Path, tmp_path: Path, case: Case) -> None:
    """Exit status 1, the reason on stderr, nothing on stdout, no file but the input."""
    (tmp_path / "in").write_bytes(case.data)
    done = subprocess.run(
        [str(bin_dir / "kv-compress"), "-input", "in", "-output", "out"],
        cwd=tmp_path,
        capture_output=True,
        timeout=SECONDS,
    )
    message = done.stderr.decode()
    assert done.returncode == 1, message
    assert re.search(case.recognised or case.words, message), message
    assert "\n" not in message.strip()
    assert done.stdout == b""
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@every_case
@pytest.mark.parametrize("chunk", [1 << 20, 7], ids=["whole", "in_pieces"])
def test_server_refuses(stub: CompressionServiceStub, case: Case, chunk: int) -> None:
    """The code, the reason, and where: in words, and for programs in ErrorInfo."""
    data = case.data
    if chunk < 64 and len(data) > 4096:
        chunk = len(data) // 512
    with pytest.raises(grpc.RpcError) as raised:
        compress(stub, data, chunk)
    error = raised.value
    assert isinstance(error, grpc.Call)
    message = error.details()
    assert error.code().name == case.code, message
    assert re.search(case.words, message), message
    info = details(error)
    assert info.domain == DOMAIN
    assert re.fullmatch("[A-Z][A-Z0-9_]*", info.reason)
    if case.tensor is not None:
        assert info.metadata.get("tensor") == case.tensor, message
    if case.offset is not None:
        assert info.metadata.get("offset") == str(case.offset), message
    if case.element is not None:
        assert info.metadata.get("element") == str(case.element), message


@every_control
def test_unusual_files_are_taken(
    bin_dir: Path, tmp_path: Path, stub: CompressionServiceStub, data: bytes
) -> None:
    """By the library, the command line and the server, whose artefacts are the same."""
    assert not refused_by_library(data)
    (tmp_path / "in").write_bytes(data)
    binary = str(bin_dir / "kv-compress")
    for arguments in (
        ["-input", "in", "-output", "artefact"],
        ["-verify", "artefact"],
        ["-decompress", "-input", "artefact", "-output", "restored"],
    ):
        done = subprocess.run([binary, *arguments], cwd=tmp_path, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr.decode()
        json.loads(done.stdout)
    assert compress(stub, data, 5) == (tmp_path / "artefact").read_bytes()
    assert by_library((tmp_path / "restored").read_bytes()) == by_library(data)


def test_server_still_serves(stub: CompressionServiceStub, sample: bytes) -> None:
    """After all that; the tests of this file run in order, on one server."""
    artefact = compress(stub, sample, 1 << 18)
    assert not refused_by_library(artefact)
    answer = stub.SelfTest(pb.SelfTestRequest(), timeout=SECONDS)
    assert answer.passed


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.element is not None], ids=lambda case: case.name
)
def test_lossless_carries_what_lossy_codecs_refuse(
    bin_dir: Path, tmp_path: Path, case: Case
) -> None:
    """NaN and infinity come back bit for bit."""
    (tmp_path / "in").write_bytes(case.data)
    binary = str(bin_dir / "kv-compress")
    for arguments in (
        ["-input", "in", "-output", "artefact", "-codec", "lossless"],
        ["-decompress", "-input", "artefact", "-output", "restored"],
    ):
        done = subprocess.run([binary, *arguments], cwd=tmp_path, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr.decode()
    restored = deserialize((tmp_path / "restored").read_bytes())
    assert restored == deserialize(case.data)
