# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The Python client with a server of its own: that it works, and that it ends."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import kvcompress
from kvcompress import aio, payload

TENSORS = {"layer_0_key": np.linspace(-1, 1, 4096, dtype=np.float32).reshape(1, 2, 32, 64)}
CLIENT = Path(kvcompress.__file__).parents[1]


@pytest.fixture(autouse=True)
def folder(bin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where servers put their sockets, so that their command lines tell them apart."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def processes(folder: Path) -> list[int]:
    """Processes with the folder in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if entry.name.isdigit() and f"{folder}/kvcompress-".encode() in line:
            found.append(int(entry.name))
    return found


def wait_until_gone(folder: Path) -> None:
    """Waits until no server runs and no socket is left."""
    deadline = time.monotonic() + 20
    while processes(folder) or any(folder.iterdir()):
        assert time.monotonic() < deadline, (processes(folder), list(folder.iterdir()))
        time.sleep(0.02)


def test_server_of_its_own(folder: Path) -> None:
    with kvcompress.Client(timeout=60) as client:
        artefact = client.compress(TENSORS, codec="int8").artefact
        assert artefact is not None
        restored = client.decompress(artefact).tensors
        assert len(processes(folder)) == 3, "the server, the shell that watches it, and its reader"
        assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o700]
    assert restored is not None
    assert np.array_equal(restored["layer_0_key"], payload.read(artefact)["layer_0_key"])
    wait_until_gone(folder)
    client.close()


def test_server_of_its_own_for_asyncio(folder: Path) -> None:
    async def main() -> None:
        async with aio.Client(timeout=60) as client:
            results = await asyncio.gather(*(client.compress(TENSORS) for _ in range(8)))
            assert len({result.artefact for result in results}) == 1
            reports = await asyncio.gather(client.measure(TENSORS), client.server_info())
            assert reports[0].payload_digest == results[0].report.payload_digest
            assert (await client.self_test("int4")).passed

    asyncio.run(main())
    wait_until_gone(folder)


def test_each_client_has_its_own_server(folder: Path) -> None:
    first, second = kvcompress.Client(timeout=60), kvcompress.Client(timeout=60)
    with first:
        second.close()
        assert len(list(folder.iterdir())) == 1
        first.compress(TENSORS)
    wait_until_gone(folder)


def test_thread_that_starts_it_may_end(folder: Path) -> None:
    clients: list[kvcompress.Client] = []
    thread = threading.Thread(target=lambda: clients.append(kvcompress.Client(timeout=60)))
    thread.start()
    thread.join()
    with clients[0] as client:
        time.sleep(0.1)
        client.compress(TENSORS)
    wait_until_gone(folder)


def test_client_that_is_forgotten(folder: Path) -> None:
    client = kvcompress.Client(timeout=60)
    client.server_info()
    del client
    wait_until_gone(folder)


PROGRAM = (
    "import os, sys, time, kvcompress\n"
    "client = kvcompress.Client(timeout=60)\n"
    "print(client.server_info().api_version, flush=True)\n"
)


def test_interpreter_that_ends(folder: Path) -> None:
    """However it ends: quietly, or by an error that nobody catches."""
    environment = {**os.environ, "PYTHONPATH": str(CLIENT)}
    for ending in ("", "raise SystemExit(3)", "os._exit(4)"):
        command = [sys.executable, "-c", PROGRAM + ending]
        done = subprocess.run(command, env=environment, capture_output=True, timeout=60)
        assert done.stdout == b"v1\n", done.stderr.decode()
        wait_until_gone(folder)


def test_interpreter_that_is_killed(folder: Path) -> None:
    """SIGKILL leaves no time for anything; the server ends all the same. SIGINT is not its."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + "sys.stdin.read()"],
        env={**os.environ, "PYTHONPATH": str(CLIENT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"v1\n"
        servers = processes(folder)
        assert os.getsid(process.pid) not in {os.getsid(server) for server in servers}
        process.send_signal(signal.SIGKILL)
    wait_until_gone(folder)


def test_every_codec_and_byte_compressor(sample: bytes, client: kvcompress.Client) -> None:
    """What the server lists, the client can ask for, and the report names."""
    info = client.server_info()
    for codec in info.codecs:
        for compressor in ("", *info.byte_compressors):
            choice = {"name": codec.name, "byte_compressor": compressor}
            result = client.compress(sample, codec=choice)
            assert result.artefact is not None
            assert result.report.tensor_count == 60
            assert client.decompress(result.artefact, verify_only=True).report.tensor_count == 60
