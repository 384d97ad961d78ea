# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`python -m kvcompress` is kv-compress: the same process, streams, statuses and signals.

Where it is looked for is tested in client/python/tests/test_launcher.py.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kv_compress import open_files

import kvcompress
from oracle.fixtures import SAMPLE

COMMAND = [sys.executable, "-m", "kvcompress"]


@pytest.fixture(autouse=True)
def folder(bin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, with the package and the program where a new interpreter finds them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir.resolve()))
    monkeypatch.setenv("PYTHONPATH", str(Path(kvcompress.__file__).parents[1]))
    return tmp_path


def launch(*arguments: object, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """Runs `python -m kvcompress`."""
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60)


def test_from_standard_input_to_standard_output(folder: Path) -> None:
    """The service runs inside the process; the JSON makes way for the data."""
    data = SAMPLE.read_bytes()
    done = launch("-input", "-", "-output", "-", stdin=data)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stderr)["compressed_size_bytes"] == len(done.stdout)
    assert kvcompress.payload.read(done.stdout).keys() == kvcompress.load_arrays(data)[0].keys()
    assert list(folder.iterdir()) == []


def test_statuses_and_messages(bin_dir: Path) -> None:
    """Of success, of a mistake, and of a bound that does not hold."""
    for arguments, status in (
        (["-version"], 0),
        (["-bogus"], 1),
        (["-input", SAMPLE, "-output", "out", "-codec", "int4", "-min-snr-db", "100"], 2),
    ):
        done = launch(*arguments)
        command = [str(bin_dir / "kv-compress"), *map(str, arguments)]
        native = subprocess.run(command, capture_output=True, timeout=60)
        assert (done.returncode, done.stderr) == (status, native.stderr)
        assert len(done.stdout) == pytest.approx(len(native.stdout), abs=20), "but for the time"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_it(bin_dir: Path, folder: Path, number: int) -> None:
    """The process that was started is kv-compress, which leaves nothing behind."""
    # Who runs the tests may ignore it, as nohup does, and children inherit that.
    heed = ["env", f"--default-signal={number:d}"]
    command = [*heed, *COMMAND, "-input", "-", "-output", "out"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(SAMPLE.read_bytes()[:-100])
        process.stdin.flush()
        give_up = time.monotonic() + 30
        while not any("deleted" in path for path in open_files(process.pid)):
            assert process.poll() is None
            assert time.monotonic() < give_up
            time.sleep(0.01)
        link = Path(f"/proc/{process.pid}/exe").readlink()
        assert link == (bin_dir / "kv-compress").resolve()
        process.send_signal(number)
        assert process.wait(30) != 0
    assert list(folder.iterdir()) == []


def test_environment_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of KVCOMPRESS_SERVER, which is not there."""
    monkeypatch.setenv("KVCOMPRESS_SERVER", "unix:absent")
    done = launch("-input", SAMPLE, "-metrics-only")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"absent" in done.stderr
