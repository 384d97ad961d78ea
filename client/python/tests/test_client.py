# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The client against answers that the real server never sends, and against broken input."""

import asyncio
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import kvcompress
from fake import (
    Answer,
    BlockingAio,
    artefact,
    begin,
    canned,
    compressed,
    failing,
    fake_server,
    reconstructed,
    restored,
    safetensors,
)
from kvcompress import aio

Connected = Callable[[Answer], AbstractContextManager[kvcompress.Client]]


@pytest.fixture(params=[kvcompress.Client, BlockingAio])
def connected(request: pytest.FixtureRequest) -> Connected:
    """Returns a client, of either kind, of a server that answers like this."""

    @contextmanager
    def connected(answer: Answer) -> Iterator[kvcompress.Client]:
        with fake_server(answer) as target, request.param(target, timeout=10) as client:
            yield client

    return connected


def names(folder: Path) -> list[str]:
    """Lists a folder."""
    return sorted(path.name for path in folder.iterdir())


GOOD = [begin(4), artefact(4, b"body"), artefact(8, b"!"), artefact(0, b"head"), compressed(9)]
RESTORED = b"\x02" + bytes(7) + b"{}"


def test_artefact_is_put_together(connected: Connected, tmp_path: Path) -> None:
    path = tmp_path / "out"
    with connected(canned(GOOD)) as client:
        assert client.compress(b"").artefact == b"headbody!"
        assert client.compress(b"", path).path == path
    assert path.read_bytes() == b"headbody!"
    assert names(tmp_path) == ["out"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("permissions", [0o600, 0o664])
def test_permissions_are_those_of_the_input(
    connected: Connected, tmp_path: Path, permissions: int
) -> None:
    """What few may read stays so, also where it replaces what more may read."""
    source = tmp_path / "source"
    source.write_bytes(b"")
    source.chmod(permissions)
    path = tmp_path / "out"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with connected(canned(GOOD)) as client:
        client.compress(source, path, overwrite=True)
    assert path.read_bytes() == b"headbody!"
    assert stat.S_IMODE(path.stat().st_mode) == permissions


BAD_COMPRESS = {
    "no trailer": ("NO_TRAILER", GOOD[:-1]),
    "nothing": ("NO_TRAILER", []),
    "no begin": ("BAD_STREAM", GOOD[1:]),
    "begin twice": ("BAD_STREAM", [GOOD[0], *GOOD]),
    "trailer twice": ("BAD_STREAM", [*GOOD, GOOD[-1]]),
    "chunk after the trailer": ("BAD_STREAM", [*GOOD, artefact(9, b"x")]),
    "gap": ("BAD_STREAM", [GOOD[0], GOOD[1], artefact(9, b"x"), *GOOD[3:]]),
    "overlap": ("BAD_STREAM", [GOOD[0], GOOD[1], artefact(7, b"x"), *GOOD[3:]]),
    "no header": ("BAD_STREAM", [*GOOD[:3], GOOD[4]]),
    "short header": ("BAD_STREAM", [*GOOD[:3], artefact(0, b"hea"), GOOD[4]]),
    "long header": ("BAD_STREAM", [*GOOD[:3], artefact(0, b"heade"), GOOD[4]]),
    "size too small": ("BAD_STREAM", [*GOOD[:4], compressed(8)]),
    "size too large": ("BAD_STREAM", [*GOOD[:4], compressed(10)]),
    "file not asked for": ("BAD_STREAM", [GOOD[0], reconstructed(0, b"x"), *GOOD[1:]]),
}


@pytest.mark.parametrize("name", BAD_COMPRESS)
def test_bad_answer_leaves_no_file(connected: Connected, name: str, tmp_path: Path) -> None:
    reason, responses = BAD_COMPRESS[name]
    before = tmp_path / "before"
    before.write_bytes(b"as it was")
    with connected(canned(responses)) as client:
        for path in (tmp_path / "new", before, None):
            with pytest.raises(kvcompress.DataLossError) as caught:
                client.compress(b"", path, overwrite=True)
            assert caught.value.reason == reason
    assert names(tmp_path) == ["before"]
    assert before.read_bytes() == b"as it was"


def test_header_in_pieces(connected: Connected) -> None:
    pieces = [*GOOD[:3], artefact(0, b"he"), artefact(2, b"ad"), GOOD[4]]
    with connected(canned(pieces)) as client:
        assert client.compress(b"").artefact == b"headbody!"


@pytest.mark.parametrize("size", [0, 1, -1])
def test_reconstructed_file_is_complete(connected: Connected, size: int, tmp_path: Path) -> None:
    data = b"12" if size >= 0 else b"1"
    pieces = [GOOD[0], reconstructed(0, RESTORED), reconstructed(10, data), *GOOD[1:4]]
    pieces.append(compressed(9, 2 + max(size, 0)))
    path, other = tmp_path / "path", tmp_path / "other"
    with connected(canned(pieces)) as client:
        if size == 0:
            assert client.compress(b"", reconstruct=True).reconstructed == RESTORED + b"12"
            result = client.compress(b"", path, reconstruct=other)
            assert (result.reconstructed, other.read_bytes()) == (None, RESTORED + b"12")
        else:
            with pytest.raises(kvcompress.DataLossError):
                client.compress(b"", path, reconstruct=other)
            assert names(tmp_path) == []


BAD_DECOMPRESS = {
    "no trailer": ("NO_TRAILER", [safetensors(0, RESTORED)]),
    "gap": ("BAD_STREAM", [safetensors(1, RESTORED), restored(11)]),
    "size differs": ("BAD_STREAM", [safetensors(0, RESTORED), restored(11)]),
    "trailer first": ("BAD_STREAM", [restored(10), safetensors(0, RESTORED)]),
}


@pytest.mark.parametrize("name", BAD_DECOMPRESS)
def test_bad_restored_file(connected: Connected, name: str, tmp_path: Path) -> None:
    reason, responses = BAD_DECOMPRESS[name]
    with connected(canned(responses)) as client:
        for path in (tmp_path / "new", None):
            with pytest.raises(kvcompress.DataLossError) as caught:
                client.decompress(b"", path)
            assert caught.value.reason == reason
    assert names(tmp_path) == []


def test_verify_only_writes_nothing(connected: Connected, tmp_path: Path) -> None:
    with connected(canned([restored(0)])) as client:
        result = client.decompress(b"", tmp_path / "out", verify_only=True)
    assert (result.path, result.tensors) == (None, None)
    assert names(tmp_path) == []


def test_errors_carry_the_place(connected: Connected) -> None:
    places = {"tensor": "t ☂", "offset": "18446744073709551615", "element": "7", "limit": "x"}
    answer = failing(grpc.StatusCode.DATA_LOSS, "PAYLOAD_DAMAGED", places)
    with connected(answer) as client, pytest.raises(kvcompress.DataLossError) as caught:
        client.decompress(b"")
    error = caught.value
    assert (error.code, error.reason, error.message) == (
        "DATA_LOSS",
        "PAYLOAD_DAMAGED",
        "a message",
    )
    assert (error.tensor, error.offset, error.element) == ("t ☂", 2**64 - 1, 7)
    assert (error.limit, error.field) == (None, None)
    assert str(error) == "DATA_LOSS (PAYLOAD_DAMAGED): a message"


def test_refusal_while_requests_are_on_their_way(connected: Connected) -> None:
    """The server's status, not that of the request that could not be sent any more."""
    with connected(failing(grpc.StatusCode.INVALID_ARGUMENT, "R", {})) as client:
        for _ in range(40):
            with pytest.raises(kvcompress.InvalidArgumentError, match="a message"):
                client.compress(bytes(2 << 20))


@pytest.mark.parametrize(
    "code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]
)
def test_every_code_has_a_class(connected: Connected, code: grpc.StatusCode) -> None:
    with (
        connected(failing(code, "R", {})) as client,
        pytest.raises(kvcompress.KVCompressError) as caught,
    ):
        client.compress(b"")
    assert caught.value.code == code.name
    assert (type(caught.value) is kvcompress.KVCompressError) is False


def test_python_families() -> None:
    assert issubclass(kvcompress.InvalidArgumentError, ValueError)
    assert issubclass(kvcompress.DeadlineExceededError, TimeoutError)


def test_timeout(connected: Connected) -> None:
    """It comes while the server has not answered."""
    release, answered = threading.Event(), threading.Event()

    def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        release.wait(60)
        answered.set()
        yield from ()

    with connected(answer) as client:
        with pytest.raises(kvcompress.DeadlineExceededError):
            client.compress(b"", timeout=0.2)
        assert not answered.is_set()
        release.set()


class BrokenSource(dict[str, kvcompress.Array]):
    """Arrays that can be listed once."""

    def items(self) -> Any:  # noqa: ANN401
        """Returns the arrays, and fails when they are asked for again."""
        taken = dict(self)
        self.clear()
        if not taken:
            raise MemoryError("no room")
        return taken.items()


def test_input_that_breaks_is_the_error(connected: Connected, tmp_path: Path) -> None:
    broken = BrokenSource(x=np.ones(4, np.float32))
    with connected(canned(GOOD)) as client, pytest.raises(MemoryError, match="no room"):
        client.compress(broken, tmp_path / "out")
    assert names(tmp_path) == []


def test_wrong_input_is_refused_before_a_call(tmp_path: Path) -> None:
    with kvcompress.Client("127.0.0.1:1") as client:
        with pytest.raises(FileNotFoundError):
            client.compress(tmp_path / "not there", tmp_path / "out")
        with pytest.raises(TypeError):
            client.compress(3)  # type: ignore[call-overload]
        with pytest.raises(kvcompress.InvalidArgumentError) as caught:
            client.compress({"x": np.zeros(3, complex)})
        assert caught.value.tensor == "x"
        with pytest.raises(kvcompress.InvalidArgumentError):
            client.compress(b"", metadata={"a": "b"})
    assert names(tmp_path) == []


def test_output_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with kvcompress.Client("127.0.0.1:1") as client:
        with pytest.raises(ValueError, match="not a regular file"):
            client.compress(b"", tmp_path / "pipe")
        with pytest.raises(FileNotFoundError):
            client.compress(b"", tmp_path / "no such" / "out")
    assert names(tmp_path) == ["pipe"]


def test_link_as_output_is_followed(connected: Connected, tmp_path: Path) -> None:
    target_file, link = tmp_path / "file", tmp_path / "link"
    target_file.write_bytes(b"old")
    link.symlink_to(target_file)
    with connected(canned(GOOD)) as client:
        client.compress(b"", link, overwrite=True)
    assert link.is_symlink()
    assert target_file.read_bytes() == b"headbody!"


def test_answer_that_cannot_be_written_ends_the_call(
    connected: Connected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled = threading.Event()

    def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(cancelled.set)
        yield from GOOD[:2]
        cancelled.wait(10)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with connected(answer) as client:
        with pytest.raises(OSError, match="No space left"):
            client.compress(b"", tmp_path / "out")
        assert cancelled.wait(5)
    assert names(tmp_path) == []


def test_unknown_level_and_types_are_no_error(connected: Connected) -> None:
    trailer = compressed(9)
    trailer.trailer.verdict.level = 99  # type: ignore[assignment]
    trailer.trailer.tensors.add(name="x", dtype=99)
    with connected(canned([*GOOD[:4], trailer])) as client:
        report = client.compress(b"").report
    assert report.verdict.level is kvcompress.QualityLevel.UNSPECIFIED
    assert report.tensors[0].dtype == ""


def test_memory_is_bounded_from_path_to_path(tmp_path: Path) -> None:
    """64 MiB in and out, with a peak of a few chunks; measured in a process of its own."""
    source = tmp_path / "in"
    with source.open("wb") as file:
        file.write(RESTORED)
        file.truncate(64 << 20)

    def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        size = 0
        for request in requests:
            if request.safetensors:
                yield artefact(size, request.safetensors)
                size += len(request.safetensors)
            else:
                yield begin(0)
        yield compressed(size)

    program = (
        "import resource, sys, kvcompress\n"
        "base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "with kvcompress.Client(sys.argv[1], timeout=60) as client:\n"
        "    client.compress(sys.argv[2], sys.argv[3])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base)\n"
    )
    with fake_server(answer) as target:
        arguments = [sys.executable, "-c", program, target, str(source), str(tmp_path / "out")]
        modules = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(arguments, capture_output=True, check=True, timeout=60, env=modules)
    assert (tmp_path / "out").stat().st_size == 64 << 20
    assert int(done.stdout) < 40 << 10, "KiB more than at the start"


def test_cancelled_task_leaves_no_file(tmp_path: Path) -> None:
    """A task of asyncio may end in the middle of a call, which then ends on the server too."""
    begun, ended = threading.Event(), threading.Event()

    def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(ended.set)
        yield from GOOD[:2]
        begun.set()
        ended.wait(10)

    async def main(target: str) -> None:
        async with aio.Client(target, timeout=30) as client:
            call = asyncio.create_task(client.compress(bytes(1 << 22), tmp_path / "out"))
            await asyncio.to_thread(begun.wait, 10)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await asyncio.to_thread(ended.wait, 10)

    with fake_server(answer) as target:
        asyncio.run(main(target))
    assert names(tmp_path) == []


def test_event_loop_goes_on_during_calls() -> None:
    """Input that is slow to read holds up its own call and nothing else."""

    class Slow(dict[str, kvcompress.Array]):
        """Arrays that take their time."""

        def items(self) -> Any:  # noqa: ANN401
            """Returns the arrays, the second time after a pause."""
            if hasattr(self, "_seen"):
                time.sleep(0.5)
            self._seen = True
            return super().items()

    async def main(target: str) -> int:
        ticks = 0
        async with aio.Client(target, timeout=30) as client:
            call = asyncio.create_task(client.compress(Slow(x=np.ones(4, np.float32))))
            while not call.done():
                await asyncio.sleep(0.01)
                ticks += 1
            await call
        return ticks

    with fake_server(canned(GOOD)) as target:
        assert asyncio.run(main(target)) > 10
