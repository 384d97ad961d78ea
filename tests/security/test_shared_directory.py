# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Calls that name files of a shared directory: what they do, and what they refuse.

More than 400 lines: all of it is about one directory and one server, which tests share. Others may
do anything in that directory at any moment. The server returns a clear error, leaves nothing half
done, and goes on.
"""

import json
import mmap
import os
import resource
import signal
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

import grpc
import numpy as np
import pytest
from authority import Authority
from calls import details, wait_until_released
from process_memory import peak
from server_process import PATIENCE, Start, run

from kvcompress.v1 import compression_service_pb2 as pb
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub
from kvcompress.v1.server_info_pb2 import GetServerInfoRequest

SHAPE = (1, 4, 256, 64)


def cache(tensors: int = 2) -> bytes:
    """A safetensors file of F32 tensors of 256 KiB."""
    size = 4 * int(np.prod(SHAPE))
    entries = {
        f"layer_{index}_key": {
            "dtype": "F32",
            "shape": SHAPE,
            "data_offsets": [index * size, (index + 1) * size],
        }
        for index in range(tensors)
    }
    header = json.dumps(entries).encode()
    values = np.random.default_rng(1).standard_normal(tensors * size // 4).astype("<f4")
    return struct.pack("<Q", len(header)) + header + values.tobytes()


class Reply(Protocol):
    """A call under way."""

    def __iter__(self) -> Iterator[pb.CompressFileResponse]:
        """Its messages."""
        ...

    def __next__(self) -> pb.CompressFileResponse:
        """The next message."""
        ...

    def cancel(self) -> object:
        """Cancels the call."""
        ...


class Shared:
    """A server that shares a directory, and its calls."""

    def __init__(self, start: Start, folder: Path, *flags: str) -> None:
        """Starts it on a Unix socket and on TCP, with more flags."""
        self.folder = folder / "shared"
        self.folder.mkdir()
        self.outside = folder / "outside"
        self.outside.mkdir()
        self.address = f"unix:{folder}/kv.sock"
        addresses = ["--listen", self.address, "--listen", "127.0.0.1:0"]
        self.server = start(*addresses, "--shared-directory", str(self.folder), *flags)
        self.channel = grpc.insecure_channel(self.address)
        self.stub = CompressionServiceStub(self.channel)

    def compress(
        self, source: str, output: str, codec: str = "int4", *, overwrite: bool = False
    ) -> pb.CompressFileResponse:
        """The last message of a CompressFile call."""
        request = pb.CompressFileRequest(
            options=pb.CompressOptions(codec=codec),
            input_path=source,
            output_path=output,
            overwrite=overwrite,
        )
        return list(self.stub.CompressFile(request, timeout=3 * PATIENCE))[-1]

    def decompress(
        self, source: str, output: str, *, reuse: bool = False
    ) -> pb.DecompressFileResponse:
        """The last message of a DecompressFile call; without an output it verifies."""
        options = pb.DecompressOptions(verify_only=not output)
        request = pb.DecompressFileRequest(
            options=options,
            input_path=source,
            output_path=output,
            overwrite=reuse,
            reuse=reuse,
        )
        return list(self.stub.DecompressFile(request, timeout=3 * PATIENCE))[-1]

    def refusal(self, call: Callable[[], object]) -> tuple[str, str, str]:
        """Code, reason and field of the error of a call."""
        with pytest.raises(grpc.RpcError) as raised:
            call()
        info = details(raised.value)[0]
        return raised.value.code().name, info.reason, info.metadata.get("field", "")

    def files(self) -> set[str]:
        """What is in the directory, hidden files included."""
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*")}


@pytest.fixture
def shared(start: Start, tmp_path: Path) -> Iterator[Shared]:
    """A server that shares a directory with one cache in it."""
    found = Shared(start, tmp_path)
    (found.folder / "in").write_bytes(cache())
    yield found
    # Whatever was done to it, it still serves.
    assert found.stub.GetServerInfo(GetServerInfoRequest()).shared_directory.path
    found.channel.close()


def streamed(stub: CompressionServiceStub, data: bytes) -> bytes:
    """The artefact by Compress."""
    requests = [
        pb.CompressRequest(options=pb.CompressOptions(codec="int4")),
        pb.CompressRequest(safetensors=data),
    ]
    chunks = {}
    for response in stub.Compress(iter(requests), timeout=3 * PATIENCE):
        if response.HasField("artefact"):
            chunks[response.artefact.offset] = response.artefact.data
    return b"".join(chunks[offset] for offset in sorted(chunks))


def test_the_same_bytes_as_streams(shared: Shared) -> None:
    """There and back; and the report is that of the trailer of a stream."""
    (shared.folder / "sub").mkdir()
    report = shared.compress("in", "sub/small").trailer
    small = (shared.folder / "sub/small").read_bytes()
    assert small == streamed(shared.stub, cache())
    assert report.compressed_size_bytes == len(small)
    assert report.payload_digest
    restored = shared.decompress("sub/small", "restored").trailer
    assert restored.payload_digest == report.payload_digest
    assert restored.output_size_bytes == (shared.folder / "restored").stat().st_size
    assert shared.decompress("sub/small", "").trailer.tensor_count == 2
    assert shared.files() == {"in", "sub", "sub/small", "restored"}


def test_the_output_has_the_permissions_of_the_input(shared: Shared) -> None:
    """Who may not read the cache may not read the artefact."""
    for mode in (0o600, 0o640, 0o666):
        (shared.folder / "in").chmod(mode)
        shared.compress("in", "out", overwrite=True)
        assert (shared.folder / "out").stat().st_mode & 0o777 == mode


LONG = ("x" * 300, "x" * 300 + "/in", "x" * 5000)


@pytest.mark.parametrize(
    "path", ["", "/in", "../outside/in", "a/../in", "./in", "a//in", "in/", "..", "in\0x", *LONG]
)
def test_paths_that_are_no_names(shared: Shared, path: str) -> None:
    """As input and as output."""
    refused = ("INVALID_ARGUMENT", "INVALID_PATH")
    assert shared.refusal(lambda: shared.compress(path, "out")) == (*refused, "input_path")
    assert shared.refusal(lambda: shared.compress("in", path)) == (*refused, "output_path")
    assert shared.files() == {"in"}


def test_links_lead_nowhere(shared: Shared) -> None:
    """Neither the last component nor one before, out of the directory nor within it."""
    (shared.outside / "secret").write_bytes(cache())
    (shared.folder / "out-link").symlink_to(shared.outside / "secret")
    (shared.folder / "in-link").symlink_to("in")
    (shared.folder / "folder-link").symlink_to(shared.outside)
    (shared.folder / "self").symlink_to("self")
    refused = ("FAILED_PRECONDITION", "LINK_IN_PATH", "input_path")
    for path in ("out-link", "in-link", "folder-link/secret", "self"):
        assert shared.refusal(partial(shared.compress, path, "out")) == refused
    outcome = shared.refusal(lambda: shared.compress("in", "folder-link/new"))
    assert outcome == ("FAILED_PRECONDITION", "LINK_IN_PATH", "output_path")
    outcome = shared.refusal(lambda: shared.compress("in", "out-link", overwrite=True))
    assert outcome == ("FAILED_PRECONDITION", "NOT_A_REGULAR_FILE", "output_path")
    assert {path.name for path in shared.outside.iterdir()} == {"secret"}
    assert (shared.outside / "secret").read_bytes() == cache()


def test_what_is_not_a_regular_file(shared: Shared) -> None:
    """A folder, a FIFO, a socket: nothing waits for them."""
    (shared.folder / "folder").mkdir()
    os.mkfifo(shared.folder / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(shared.folder / "sock"))
        refused = ("FAILED_PRECONDITION", "NOT_A_REGULAR_FILE")
        for path in ("folder", "fifo", "sock"):
            outcome = shared.refusal(partial(shared.compress, path, "out"))
            assert outcome == (*refused, "input_path")
            outcome = shared.refusal(partial(shared.compress, "in", path, overwrite=True))
            assert outcome == (*refused, "output_path")
    assert (shared.folder / "fifo").is_fifo()


def test_what_is_not_there(shared: Shared) -> None:
    """An input, a folder of an output, a file instead of a folder."""
    missing = ("NOT_FOUND", "NO_SUCH_FILE")
    assert shared.refusal(lambda: shared.compress("none", "out")) == (*missing, "input_path")
    assert shared.refusal(lambda: shared.compress("in", "no/out")) == (*missing, "output_path")
    assert shared.refusal(lambda: shared.compress("in/x", "out")) == (*missing, "input_path")
    assert shared.files() == {"in"}


def test_nothing_is_replaced_unless_asked(shared: Shared) -> None:
    """And a failure leaves what was there."""
    (shared.folder / "out").write_bytes(b"precious")
    outcome = shared.refusal(lambda: shared.compress("in", "out"))
    assert outcome == ("ALREADY_EXISTS", "FILE_EXISTS", "output_path")
    (shared.folder / "bad").write_bytes(cache()[:-1])
    code, reason, _ = shared.refusal(lambda: shared.compress("bad", "out", overwrite=True))
    assert (code, reason) == ("INVALID_ARGUMENT", "TRUNCATED")
    assert (shared.folder / "out").read_bytes() == b"precious"
    shared.compress("in", "out", overwrite=True)
    assert shared.decompress("out", "").trailer.tensor_count == 2
    assert shared.files() == {"in", "out", "bad"}


def test_an_input_is_not_replaced_by_its_output(shared: Shared) -> None:
    """Under its own name and that of a hard link, with everything that may replace files."""
    shared.compress("in", "small")
    small = (shared.folder / "small").read_bytes()
    (shared.folder / "hard").hardlink_to(shared.folder / "small")
    refused = ("INVALID_ARGUMENT", "SAME_FILE", "output_path")
    for name in ("small", "hard"):
        assert shared.refusal(partial(shared.compress, "small", name, overwrite=True)) == refused
        assert shared.refusal(partial(shared.decompress, "small", name)) == refused
        assert shared.refusal(partial(shared.decompress, "small", name, reuse=True)) == refused
    assert (shared.folder / "small").read_bytes() == small
    assert shared.files() == {"in", "small", "hard"}


def test_a_damaged_artefact_gives_no_file(shared: Shared) -> None:
    """One flipped bit, found by a digest when half of the output was written."""
    shared.compress("in", "small")
    damaged = bytearray((shared.folder / "small").read_bytes())
    damaged[-1] ^= 1
    (shared.folder / "small").write_bytes(damaged)
    code, reason, _ = shared.refusal(lambda: shared.decompress("small", "restored"))
    assert (code, reason) == ("DATA_LOSS", "PAYLOAD_DAMAGED")
    assert shared.files() == {"in", "small"}


def test_a_file_that_is_reused(shared: Shared) -> None:
    """The same file has the new bytes, and nothing of the old; after a failure there is none."""
    shared.compress("in", "small")
    shared.decompress("small", "plain")
    plain = (shared.folder / "plain").read_bytes()
    shared.decompress("small", "out", reuse=True)
    out = shared.folder / "out"
    inode = out.stat().st_ino
    with out.open("ab") as file:
        file.write(b"more")
    shared.decompress("small", "out", reuse=True)
    assert (out.stat().st_ino, out.read_bytes()) == (inode, plain)
    outcome = shared.refusal(lambda: shared.decompress("in", "out", reuse=True))
    assert outcome[0] == "FAILED_PRECONDITION"
    assert shared.files() == {"in", "small", "plain"}


def test_a_file_with_another_name_is_not_reused(shared: Shared) -> None:
    """What has the other name keeps its bytes."""
    shared.compress("in", "small")
    shared.decompress("small", "out", reuse=True)
    (shared.folder / "out").write_bytes(b"precious")
    os.link(shared.folder / "out", shared.folder / "other")
    shared.decompress("small", "out", reuse=True)
    assert (shared.folder / "other").read_bytes() == b"precious"
    assert shared.files() == {"in", "small", "out", "other"}


SLOW_TENSORS = 64
# More than a second of work, where the fast codecs would be done before a test can act.
SLOW = pb.CompressFileRequest(
    options=pb.CompressOptions(codec="klt", effort=pb.EFFORT_BEST),
    input_path="in",
    output_path="out",
)


def begin_slowly(shared: Shared) -> "Reply":
    """A call that takes more than a second, once it has begun to work."""
    (shared.folder / "in").write_bytes(cache(SLOW_TENSORS))
    call = shared.stub.CompressFile(SLOW, timeout=3 * PATIENCE)
    first = next(call)
    assert 0 < first.progress.bytes_read < first.progress.bytes_total
    return call


@pytest.mark.parametrize("change", ["cut", "write", "replace", "remove", "grow"])
def test_an_input_that_changes_is_refused(shared: Shared, change: str) -> None:
    """While it is read; one that is cut would end a process that had mapped it."""
    call = begin_slowly(shared)
    path = shared.folder / "in"
    os.kill(shared.server.pid, signal.SIGSTOP)
    if change == "cut":
        os.truncate(path, 1000)
    elif change == "write":
        with path.open("r+b") as file:
            file.seek(-8, os.SEEK_END)
            file.write(bytes(8))
    elif change == "replace":
        (shared.folder / "other").write_bytes(cache(SLOW_TENSORS))
        (shared.folder / "other").rename(path)
    elif change == "remove":
        path.unlink()
    else:
        with path.open("ab") as file:
            file.write(b"more")
    os.kill(shared.server.pid, signal.SIGCONT)
    with pytest.raises(grpc.RpcError) as raised:
        list(call)
    assert raised.value.code() == grpc.StatusCode.ABORTED
    assert details(raised.value)[0].reason == "INPUT_CHANGED"
    assert "out" not in shared.files()


def test_a_torn_read_is_refused(start: Start) -> None:
    """Bytes that change without the times of the file, as by a write that began before the call."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        shared = Shared(start, Path(folder))
        path = shared.folder / "in"
        path.write_bytes(cache(SLOW_TENSORS))
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            before = path.stat()
            call = shared.stub.CompressFile(SLOW, timeout=3 * PATIENCE)
            assert next(call).progress.bytes_read > 0
            mapped[path.stat().st_size // SLOW_TENSORS // 2] ^= 1
            with pytest.raises(grpc.RpcError) as raised:
                list(call)
            after = path.stat()
        assert (after.st_mtime_ns, after.st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)
        assert raised.value.code() == grpc.StatusCode.ABORTED
        assert details(raised.value)[0].reason == "INPUT_CHANGED"
        assert shared.files() == {"in"}
        shared.compress("in", "out")
        shared.channel.close()


@pytest.mark.parametrize("threads", ["1", "4"])
def test_a_write_that_stands_still_for_a_moment_is_seen(start: Start, threads: str) -> None:
    """A writer that gets no processor while an input is read goes on before it is read again."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        shared = Shared(start, Path(folder), "--threads", threads)
        path = shared.folder / "in"
        path.write_bytes(cache(1))
        ended = threading.Event()
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:

            def write() -> None:
                while not ended.wait(0.05):
                    mapped[-1] = (mapped[-1] + 1) % 256

            writer = threading.Thread(target=write)
            writer.start()
            try:
                with pytest.raises(grpc.RpcError) as raised:
                    shared.compress("in", "out", "lossless")
            finally:
                ended.set()
                writer.join()
        assert raised.value.code() == grpc.StatusCode.ABORTED
        assert shared.files() == {"in"}
        shared.compress("in", "out", "lossless")
        shared.channel.close()


def test_a_client_that_goes_stops_the_work(shared: Shared) -> None:
    """By cancelling, and by a deadline; nothing is left, also not of memory."""
    begin_slowly(shared).cancel()
    with pytest.raises(grpc.RpcError) as raised:
        list(shared.stub.CompressFile(SLOW, timeout=0.2))
    assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until_released(shared.server)
    assert shared.files() == {"in"}


def test_a_killed_server_leaves_nothing(shared: Shared, start: Start, tmp_path: Path) -> None:
    """What has no name yet goes with the process."""
    begin_slowly(shared)
    shared.server.kill()
    assert shared.files() == {"in"}
    flags = ["--listen", shared.address, "--shared-directory", str(shared.folder)]
    shared.server = start(*flags)


def test_a_limit_on_files_fails_the_call_alone(shared: Shared) -> None:
    """The process would end by a signal that it does not ignore."""
    resource.prlimit(shared.server.pid, resource.RLIMIT_FSIZE, (4096, 4096))
    code, reason, field = shared.refusal(lambda: shared.compress("in", "out"))
    assert (code, reason, field) == ("RESOURCE_EXHAUSTED", "NO_SPACE", "output_path")
    assert shared.files() == {"in"}


def test_only_over_a_unix_socket(shared: Shared) -> None:
    """Over TCP the directory is not reported, and files cannot be named."""
    address = next(a for a in shared.server.addresses if not a.startswith("unix:"))
    assert shared.stub.GetServerInfo(GetServerInfoRequest()).HasField("shared_directory")
    with shared.server.channel(address) as channel:
        stub = CompressionServiceStub(channel)
        assert not stub.GetServerInfo(GetServerInfoRequest()).HasField("shared_directory")
        request = pb.CompressFileRequest(input_path="in", output_path="out")
        outcome = shared.refusal(lambda: list(stub.CompressFile(request, timeout=PATIENCE)))
    assert outcome == ("PERMISSION_DENIED", "NOT_LOCAL", "")
    assert shared.files() == {"in"}


def test_rules_of_who_may_call(start: Start, authority: Authority, tmp_path: Path) -> None:
    """A rule for Compress is none for CompressFile."""
    flags = [*authority.sign("server").server_flags, "--tls-client-ca", str(authority.certificate)]
    address = f"unix:{tmp_path}/kv.sock"
    (tmp_path / "in").write_bytes(cache())
    flags += ["--listen", address, "--shared-directory", str(tmp_path)]
    server = start(*flags, "--allow", "Compress+DecompressFile=unix")
    with server.channel(address) as channel:
        stub = CompressionServiceStub(channel)
        request = pb.CompressFileRequest(input_path="in", output_path="out")
        with pytest.raises(grpc.RpcError) as raised:
            list(stub.CompressFile(request, timeout=PATIENCE))
    assert raised.value.code() == grpc.StatusCode.PERMISSION_DENIED
    assert details(raised.value)[0].reason == "METHOD_NOT_ALLOWED"


def test_without_a_directory(start: Start, tmp_path: Path) -> None:
    """Clients are asked to stream; and one that is no directory is found out at the start."""
    address = f"unix:{tmp_path}/kv.sock"
    with start("--listen", address).channel(address) as channel:
        stub = CompressionServiceStub(channel)
        assert not stub.GetServerInfo(GetServerInfoRequest()).HasField("shared_directory")
        request = pb.CompressFileRequest(input_path="in", output_path="out")
        with pytest.raises(grpc.RpcError) as raised:
            list(stub.CompressFile(request, timeout=PATIENCE))
    assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert details(raised.value)[0].reason == "NO_SHARED_DIRECTORY"
    for path in (tmp_path / "none", Path("/dev/null")):
        for check in ([], ["--check-config"]):
            result = run("--shared-directory", str(path), "--metrics-listen=", *check)
            assert result.returncode == 1
            assert "the shared directory" in result.stderr


def test_options_that_do_not_fit(shared: Shared) -> None:
    """Values that would have to come back, and verifying into a file."""
    options = pb.CompressOptions(codec="int4", reconstruct=True)
    request = pb.CompressFileRequest(options=options, input_path="in", output_path="out")
    outcome = shared.refusal(lambda: list(shared.stub.CompressFile(request)))
    assert outcome == ("INVALID_ARGUMENT", "INVALID_OPTIONS", "options.reconstruct")
    verify = pb.DecompressFileRequest(
        options=pb.DecompressOptions(verify_only=True), input_path="in", output_path="out"
    )
    outcome = shared.refusal(lambda: list(shared.stub.DecompressFile(verify)))
    assert outcome == ("INVALID_ARGUMENT", "INVALID_OPTIONS", "options.verify_only")


def test_calls_are_counted(shared: Shared) -> None:
    """With the bytes that were read and written."""
    shared.compress("in", "out")
    shared.refusal(lambda: shared.compress("none", "out"))
    page = shared.server.get("/metrics")[2]
    assert 'kvcompress_requests_total{method="CompressFile"} 2' in page
    assert 'kvcompress_errors_total{code="NOT_FOUND",method="CompressFile"} 1' in page
    read = f'kvcompress_input_bytes_total{{method="CompressFile"}} {len(cache())}'
    assert read in page


def test_memory_does_not_grow_with_the_file(shared: Shared) -> None:
    """32 MiB take hardly more than 4."""
    (shared.folder / "in").write_bytes(cache(16))
    shared.compress("in", "out")
    small = peak(shared.server.pid)
    (shared.folder / "in").write_bytes(cache(128))
    shared.compress("in", "out", overwrite=True)
    shared.decompress("out", "restored")
    assert peak(shared.server.pid) < small + 16 * 2**20
