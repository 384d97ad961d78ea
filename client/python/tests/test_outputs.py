# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Output files: never an input, never one that is there unless asked for, whole or not there."""

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

import kvcompress
from fake import BlockingAio, artefact, begin, canned, compressed, fake_server, restored
from kvcompress._output_file import UnfinishedFile
from kvcompress._sinks import FileSink
from kvcompress.profiles import __main__ as profiles

GOOD = [begin(4), artefact(4, b"body"), artefact(0, b"head"), compressed(8)]
MakeClient = Callable[..., kvcompress.Client]


@pytest.fixture(params=[kvcompress.Client, BlockingAio])
def make_client(request: pytest.FixtureRequest) -> MakeClient:
    """The class of either client."""
    kind: MakeClient = request.param
    return kind


def names(folder: Path) -> list[str]:
    """Lists a folder."""
    return sorted(path.name for path in folder.iterdir())


def spellings(path: Path) -> list[Path]:
    """Other ways to name a file: another spelling, a symbolic and a hard link."""
    symbolic, hard = path.with_name("symbolic"), path.with_name("hard")
    symbolic.symlink_to(path.name)
    hard.hardlink_to(path)
    return [path, path.parent / ".." / path.parent.name / path.name, symbolic, hard]


def test_output_that_is_the_input(make_client: MakeClient, tmp_path: Path) -> None:
    """Under whatever name, and also where outputs may be replaced."""
    source = tmp_path / "in"
    source.write_bytes(b"the only copy")
    config = tmp_path / "config.json"
    config.write_text('{"rope_theta": 1}')
    with make_client("127.0.0.1:1") as client:
        for output in spellings(source):
            refused: list[tuple[Callable[..., object], dict[str, Any]]] = [
                (client.compress, {"output": output, "overwrite": True}),
                (client.compress, {"reconstruct": output, "overwrite": True}),
                (client.decompress, {"output": output, "overwrite": True}),
                (client.decompress, {"output": output, "reuse": True}),
            ]
            for method, arguments in refused:
                with pytest.raises(kvcompress.InvalidArgumentError, match="one file") as caught:
                    method(source, **arguments)
                assert caught.value.reason == "SAME_FILE"
        for paths in (
            {"output": config, "model_config": config},
            {"output": tmp_path / "new", "reconstruct": tmp_path / "new"},
        ):
            with pytest.raises(kvcompress.InvalidArgumentError, match="one file"):
                client.compress(source, overwrite=True, **paths)  # type: ignore[call-overload]
    assert source.read_bytes() == b"the only copy"
    assert names(tmp_path) == ["config.json", "hard", "in", "symbolic"]


def test_output_that_is_there(make_client: MakeClient, tmp_path: Path) -> None:
    """Is kept, unless it is said that it may be replaced."""
    path = tmp_path / "out"
    path.write_bytes(b"as it was")
    with make_client("127.0.0.1:1") as client:
        for call in (
            lambda: client.compress(b"", path),
            lambda: client.compress(b"", reconstruct=path),
            lambda: client.decompress(b"", path),
        ):
            with pytest.raises(FileExistsError, match="overwrite=True") as caught:
                call()
            assert isinstance(caught.value, kvcompress.AlreadyExistsError)
            assert caught.value.reason == "FILE_EXISTS"
    assert path.read_bytes() == b"as it was"
    with fake_server(canned(GOOD)) as target, make_client(target, timeout=10) as client:
        client.compress(b"", path, overwrite=True)
    assert path.read_bytes() == b"headbody"
    with fake_server(canned([restored(0)])) as target, make_client(target, timeout=10) as client:
        client.decompress(b"", path, verify_only=True)
    assert names(tmp_path) == ["out"]


def test_output_that_appears_during_the_call(make_client: MakeClient, tmp_path: Path) -> None:
    path = tmp_path / "out"

    def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        path.write_bytes(b"of somebody else")
        yield from canned(GOOD)(requests, context)

    with (
        fake_server(answer) as target,
        make_client(target, timeout=10) as client,
        pytest.raises(kvcompress.AlreadyExistsError),
    ):
        client.compress(b"", path)
    assert (names(tmp_path), path.read_bytes()) == (["out"], b"of somebody else")


def no_unnamed_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes files get names immediately, as on file systems without O_TMPFILE."""
    monkeypatch.delattr(os, "O_TMPFILE")


def no_hard_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes second names of files fail, as on FAT."""

    def link(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    no_unnamed_files(monkeypatch)
    monkeypatch.setattr(os, "link", link)


@pytest.mark.parametrize("lacking", [lambda patch: None, no_unnamed_files, no_hard_links])
def test_two_calls_with_one_new_output(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    lacking: Callable[[pytest.MonkeyPatch], None],
) -> None:
    """One of them is refused, on every file system."""
    lacking(monkeypatch)
    path = tmp_path / "out"
    both = threading.Barrier(2, timeout=20)
    outcomes: list[str] = []

    def write(data: bytes) -> None:
        with FileSink(path) as sink:
            sink.write(0, data)
            both.wait()
            try:
                sink.commit()
            except kvcompress.AlreadyExistsError:
                outcomes.append("refused")
            else:
                outcomes.append(data.decode())

    threads = [threading.Thread(target=write, args=(data,)) for data in (b"first", b"second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [written] = [each for each in outcomes if each != "refused"]
    assert len(outcomes) == 2
    assert (names(tmp_path), path.read_bytes().decode()) == (["out"], written)
    with FileSink(path, overwrite=True) as sink:
        sink.write(0, b"third")
        sink.commit()
    assert (names(tmp_path), path.read_bytes()) == (["out"], b"third")


WRITER = """
import os, sys
from kvcompress._sinks import FileSink
if sys.argv[2] == "named":
    del os.O_TMPFILE
with FileSink(sys.argv[1], overwrite=True) as sink:
    sink.write(0, b"half")
    print("ready", flush=True)
    sys.stdin.read()
"""


def writer(path: Path, kind: str) -> "subprocess.Popen[bytes]":
    """Starts a process that has written a part of an output."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), kind],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_process_that_is_killed_leaves_no_partial_file(tmp_path: Path, number: int) -> None:
    with writer(tmp_path / "out", "unnamed") as process:
        process.send_signal(number)
    assert names(tmp_path) == []


def test_partial_file_of_a_killed_process_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where files have names at once; that of a process that goes on is left alone."""
    other = f".{2**22 + 1}-{'0' * 16}.kvcompress-partials"
    (tmp_path / other).touch()
    with writer(tmp_path / "out", "named") as living:
        with writer(tmp_path / "out", "named") as killed:
            killed.kill()
        kept = {name for name in names(tmp_path) if f".{living.pid}-" in name}
        assert len(names(tmp_path)) == 3
        no_unnamed_files(monkeypatch)
        with FileSink(tmp_path / "new") as sink:
            sink.write(0, b"new")
            sink.commit()
        assert {*names(tmp_path)} == {*kept, other, "new"}
        living.communicate(b"", timeout=20)
    assert names(tmp_path) == sorted([other, "new"])


def test_partial_file_of_a_process_elsewhere_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose number means nothing here, as in another container."""
    no_unnamed_files(monkeypatch)
    monkeypatch.setattr(os, "getpid", lambda: 2**22 + 1)
    elsewhere = FileSink(tmp_path / "out")
    [partial] = names(tmp_path)
    monkeypatch.undo()
    no_unnamed_files(monkeypatch)
    FileSink(tmp_path / "new").close()
    assert names(tmp_path) == [partial]
    elsewhere.close()
    FileSink(tmp_path / "new").close()
    assert names(tmp_path) == []


def test_forked_process_leaves_the_parents_partial_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_unnamed_files(monkeypatch)
    file = UnfinishedFile(tmp_path / "out")
    owner = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: owner + 1)
    copy = os.dup(file.descriptor)
    file.close()
    assert len(names(tmp_path)) == 1
    os.close(copy)


def test_training_does_not_replace_its_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text"
    text.write_text("a text")
    train = ["train", "--model", "none", "--text", str(text), "--output"]
    assert profiles.main([*train, str(text), "--overwrite"]) == 1
    assert "are one file" in capsys.readouterr().err
    profile = tmp_path / "profile"
    profile.write_text("a profile")
    assert profiles.main([*train, str(profile)]) == 1
    assert "exists already" in capsys.readouterr().err
    page = tmp_path / "new.report.md"
    page.hardlink_to(text)
    train += [str(page.with_name("new.profile")), "--report", "--overwrite"]
    assert profiles.main(train) == 1
    assert "are one file" in capsys.readouterr().err
    assert (text.read_text(), profile.read_text()) == ("a text", "a profile")
