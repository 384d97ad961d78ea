# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The Python client with a server of its own: that it works, and that it ends."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
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


FORKING = """
import gc, os, sys, warnings, kvcompress
client = kvcompress.Client(timeout=60)
client.server_info()
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.close(writer)
    {in_child}
    os.read(reader, 1)  # lives until its parent has closed
    os._exit(0)
os.close(reader)
{in_parent}
client.server_info()
process = client._connection.server._process
client.close()
print("ended with", process.returncode)
os.close(writer)
print("child ended with", os.waitpid(child, 0)[1])
"""
IN_CHILD = {
    "lives": "pass",
    "drops": "del client; gc.collect()",
    "replaces": "client = kvcompress.Client(timeout=60); client.server_info(); client.close()",
    "closes": "client.close(); client.close()",
    "exits": "sys.exit(0)",
    "uses": """
    for call in (client.server_info, client.self_test, lambda: client.compress(b"")):
        try: call()
        except kvcompress.FailedPreconditionError as error: assert error.reason == "FORKED"
        else: os._exit(1)""",
}


@pytest.mark.parametrize("deed", IN_CHILD)
def test_forked_process_leaves_the_server_to_its_parent(folder: Path, deed: str) -> None:
    """As workers of PyTorch's DataLoader do. The server ends, unforced, with its own client."""
    wait = "os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)" if deed == "exits" else "pass"
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            FORKING.format(in_child=IN_CHILD[deed], in_parent=wait),
        ],
        env={**os.environ, "PYTHONPATH": str(CLIENT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "ended with 0\nchild ended with 0\n", done.stderr
    wait_until_gone(folder)


def test_forked_process_of_asyncio_leaves_the_server_to_its_parent(folder: Path) -> None:
    """The client for asyncio is another class."""
    program = """
import asyncio, os, kvcompress
async def ask(client):
    try: await client.server_info()
    except kvcompress.FailedPreconditionError as error: assert error.reason == "FORKED"
    else: raise AssertionError
    await client.close()
async def make():
    client = kvcompress.aio.Client(timeout=60)
    await client.server_info()
    return client
async def end(client):
    await client.server_info()
    await client.close()
with asyncio.Runner() as runner:
    client = runner.run(make())
    if (child := os.fork()) == 0:
        asyncio.run(ask(client))
        os._exit(0)
    print(os.waitpid(child, 0)[1])
    runner.run(end(client))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(CLIENT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "0\n", done.stderr
    assert done.returncode == 0, done.stderr
    wait_until_gone(folder)


def kill_server(client: kvcompress.Client) -> None:
    """Ends the server as the kernel does where memory runs out, and waits for its end."""
    server = client._connection.server
    assert server is not None
    [child] = [
        pid
        for pid in Path(f"/proc/{server._process.pid}/task/{server._process.pid}/children")
        .read_text()
        .split()
        if Path(f"/proc/{pid}/comm").read_text() == "kv-compressd\n"
    ]
    os.kill(int(child), signal.SIGKILL)
    server._process.wait(20)


def test_server_that_was_killed_is_started_again(folder: Path) -> None:
    """With a warning that says so; not for ever."""
    with kvcompress.Client(timeout=60) as client:
        calls: list[Callable[[], object]] = [
            client.server_info,
            client.self_test,
            lambda: client.measure(TENSORS),
            lambda: client.compress(TENSORS),
            lambda: client.decompress(artefact),
        ]
        artefact = client.compress(TENSORS).artefact or b""
        for number, call in enumerate(calls):
            kill_server(client)
            again = f"ended by SIGKILL.*started again, {number + 1} of 5"
            with pytest.warns(RuntimeWarning, match=again):
                call()
        kill_server(client)
        with pytest.raises(kvcompress.UnavailableError, match="ended by SIGKILL") as caught:
            client.measure(TENSORS)
        assert caught.value.reason == "SERVER_ENDED"
    wait_until_gone(folder)


def test_server_that_was_killed_is_started_again_for_asyncio(folder: Path) -> None:
    async def main() -> None:
        async with aio.Client(timeout=60) as client:
            await client.server_info()
            kill_server(client)  # type: ignore[arg-type]
            with pytest.warns(RuntimeWarning, match="started again, 1 of 5"):
                results = await asyncio.gather(*(client.compress(TENSORS) for _ in range(4)))
            assert len({result.artefact for result in results}) == 1

    asyncio.run(main())
    wait_until_gone(folder)


def test_server_that_was_killed_where_calls_are_tried_once(folder: Path) -> None:
    """The error says what happened."""
    with kvcompress.Client(timeout=60, attempts=1) as client:
        client.server_info()
        kill_server(client)
        with pytest.raises(kvcompress.UnavailableError, match="ended by SIGKILL") as caught:
            client.compress(TENSORS)
        assert caught.value.reason == "SERVER_ENDED"
    wait_until_gone(folder)


def test_no_signal_where_nobody_listens_any_more(folder: Path) -> None:
    """To tell a supervisor that was killed of the end is no reason to end by SIGPIPE."""
    ending = (
        "import signal\n"
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
        "process = client._connection.server._process\n"
        "os.killpg(process.pid, signal.SIGKILL)\n"
        "process.wait()\n"
        "client.close()\n"
        "print('closed')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + ending],
        env={**os.environ, "PYTHONPATH": str(CLIENT)},
        capture_output=True,
        timeout=60,
    )
    assert done.stdout == b"v1\nclosed\n", done.stderr.decode()
    wait_until_gone(folder)


def test_socket_that_was_removed(folder: Path) -> None:
    """As by a program that cleans up temporary files; the server itself lives."""
    with kvcompress.Client(timeout=60) as client:
        [own] = folder.iterdir()
        (own / "socket").unlink()
        with pytest.warns(RuntimeWarning, match="socket was removed; it was started again"):
            client.server_info()
    wait_until_gone(folder)


@pytest.mark.parametrize(
    "name", ["100%25", "a%20b", "hash#tag", "quest?ion", "com,ma", "col:on", "a b", "ü", "x" * 100]
)
def test_folder_for_temporary_files_with_any_name(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one whose path is longer than the name of a socket may be."""
    place = folder / name
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    with kvcompress.Client(timeout=60) as client:
        assert client.compress(TENSORS).artefact
        assert client._connection.server is not None
        own = Path(client._connection.server._folder)
    assert not own.exists()
    assert list(place.iterdir()) == []


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
