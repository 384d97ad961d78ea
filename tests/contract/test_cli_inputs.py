# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What kv-compress and the Python client read and say where names and files are hostile or odd."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from kv_compress import open_files

from kvcompress._inputs import open_input, printable
from oracle.fixtures import SAMPLE
from oracle.server import Server

Program = Callable[..., "subprocess.Popen[bytes]"]
PATIENCE_S = 60
# A name, and how messages show it.
NAMES = {
    b"red\x1b[31m": "red\\x1b[31m",
    b"two\nlines\r": "two\\nlines\\r",
    b"not-\xff\xfe-utf8": "not-\\xff\\xfe-utf8",
    "gpj.\u202eexe": "gpj.\\u202eexe",
    "c1-\u009b2J": "c1-\\x9b2J",
    "unseen-\u200b\ufeff": "unseen-\\u200b\\ufeff",
    "deleted-\x7f": "deleted-\\x7f",
    "isolated-\u2066\u2069\u2028": "isolated-\\u2066\\u2069\\u2028",
}
HIDDEN = "\x1b\r\x7f\u009b\u202e\u200b\ufeff\u2066\u2069\u2028"


@pytest.fixture
def program(bin_dir: Path, server: Server, tmp_path: Path) -> Program:
    """Starts kv-compress in an empty folder."""
    environment = {**os.environ, "KVCOMPRESS_SERVER": server.unix_target}

    def start(*arguments: object) -> "subprocess.Popen[bytes]":
        words = [each if isinstance(each, bytes) else str(each) for each in arguments]
        return subprocess.Popen(
            [bin_dir / "kv-compress", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env=environment,
        )

    return start


def message_of(process: "subprocess.Popen[bytes]") -> str:
    """The message of a run that failed: a line, and nothing on standard output."""
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, output) == (1, b"")
    text = errors.decode()
    assert text.startswith("Error: ")
    assert text.endswith("\n")
    assert not any(character in text for character in HIDDEN)
    return text.removesuffix("\n")


@pytest.mark.parametrize(
    "flags",
    [
        ["-info"],
        ["-verify"],
        ["-metrics-only", "-input"],
        ["-output", "out", "-input"],
        ["-decompress", "-output", "out", "-input"],
    ],
    ids=lambda flags: flags[0],
)
def test_a_fifo_that_nothing_writes_to(program: Program, tmp_path: Path, flags: list[str]) -> None:
    """Is an error that says what the file is, and no output is left."""
    os.mkfifo(tmp_path / "fifo")
    message = message_of(program(*flags, "fifo"))
    words = "open fifo: it is a FIFO, and nothing has opened it for writing within 5s"
    assert message.endswith(words)
    assert [path.name for path in tmp_path.iterdir()] == ["fifo"]


def test_a_fifo_that_is_written_later(program: Program, tmp_path: Path) -> None:
    """And process substitutions, which are pipes under a name."""
    os.mkfifo(tmp_path / "fifo")
    late = subprocess.Popen(
        ["sh", "-c", f"sleep 1; cat {SAMPLE} > fifo"], cwd=tmp_path, stdout=subprocess.PIPE
    )
    with late, program("-metrics-only", "-input", "fifo") as process:
        output, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, errors.decode()
        assert json.loads(output)["rmse"] > 0
    read, write = os.pipe()
    with subprocess.Popen(["cat", SAMPLE], stdout=write):
        os.close(write)
        path = f"/proc/{os.getpid()}/fd/{read}"
        with program("-metrics-only", "-input", path) as process:
            output, errors = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0, errors.decode()
    os.close(read)


@pytest.mark.parametrize("name", NAMES, ids=list(NAMES.values()))
def test_names_do_not_act_on_a_terminal(
    program: Program, tmp_path: Path, name: bytes | str
) -> None:
    """Of files that are not there, that are none, and that cannot be written."""
    shown = NAMES[name]
    assert f"open {shown}: no such file" in message_of(program("-info", name))
    raw = name if isinstance(name, bytes) else name.encode()
    folder = os.fsencode(tmp_path) + b"/" + raw
    message = message_of(program("-input", SAMPLE, "-output", raw + b"/absent"))
    assert shown in message
    Path(os.fsdecode(folder)).write_bytes(b"no artefact")
    message_of(program("-info", name))
    message_of(program(b"-bogus" + raw))


def test_names_of_tensors_do_not_act_on_a_terminal(program: Program, tmp_path: Path) -> None:
    """In errors; JSON escapes what it must."""
    name = "a\x1b[31m\u202e"
    header = json.dumps({name: {"dtype": "F4", "shape": [16], "data_offsets": [0, 8]}}).encode()
    file = len(header).to_bytes(8, "little") + header + bytes(8)
    (tmp_path / "cache").write_bytes(file)
    message = message_of(program("-metrics-only", "-input", "cache"))
    assert "\\033[31m\\u202e" in message


def test_what_is_printable() -> None:
    for text in ("", "plain \\ text", "ä中\U0001f600"):
        assert printable(text) == text
    assert printable("a\tb\U000e0041\x00") == "a\\tb\\U000e0041\\x00"


def test_a_fifo_is_waited_for_and_then_given_up(tmp_path: Path) -> None:
    """The thread that waited does not stay."""
    os.mkfifo(tmp_path / "fifo")
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(TimeoutError, match="nothing has opened it"):
        open_input(tmp_path / "fifo")
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGQUIT])
def test_a_client_that_is_killed_leaves_nothing(
    bin_dir: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Not even under a temporary name, and what was there stays."""
    (tmp_path / "out").write_bytes(b"precious")
    # Who runs the tests may ignore SIGQUIT, as nohup does, and children inherit that.
    command = ["env", "--default-signal", str(bin_dir / "kv-compress")]
    command += ["-input", "-", "-output", "out"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    ) as process:
        assert process.stdin is not None
        process.stdin.write(SAMPLE.read_bytes()[:-100])
        process.stdin.flush()
        while not any("deleted" in path for path in open_files(process.pid)):
            assert process.poll() is None
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == -number
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_bytes() == b"precious"
