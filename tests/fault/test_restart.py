# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A server that is killed, again and again, under clients that try again."""

import hashlib
import subprocess
import sys
import threading
import time
from pathlib import Path

from health import SERVING
from server_process import PATIENCE, Start, environment

import kvcompress

SAMPLE = Path(__file__).parents[1] / "data" / "smollm2_kjv_96_bf16.safetensors"
CLIENTS = 3
KILLS = 4


class RetryingClient:
    """A process of retrying_client.py; its lines are read as they come."""

    def __init__(self, target: str, folder: Path) -> None:
        """Starts it."""
        folder.mkdir()
        self.folder = folder
        self.lines: list[list[str]] = []
        script = Path(__file__).with_name("retrying_client.py")
        self._process = subprocess.Popen(
            [sys.executable, script, target, SAMPLE, folder],
            env=environment({"PYTHONPATH": str(Path(kvcompress.__file__).parents[1])}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.split())

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return self._process.poll() is None

    def stop(self) -> int:
        """Lets it come to its end; the exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        status = self._process.wait(3 * PATIENCE)
        self._reader.join(PATIENCE)
        return status


def wait_for_rounds(clients: list[RetryingClient], more: int) -> None:
    """Waits until every client has come through as many more times."""
    goals = [len(client.lines) + more for client in clients]
    give_up = time.monotonic() + 3 * PATIENCE
    while any(len(client.lines) < goal for client, goal in zip(clients, goals, strict=True)):
        assert all(client.running for client in clients)
        assert time.monotonic() < give_up
        time.sleep(0.02)


def test_sigkill_and_restart_under_retrying_clients(start: Start, tmp_path: Path) -> None:
    """Every result that a client got is the whole and right one; nothing else is left."""
    path = f"unix:{tmp_path}/kv.sock"
    server = start("--listen", path)
    clients = [RetryingClient(path, tmp_path / f"client{number}") for number in range(CLIENTS)]
    try:
        for kill in range(KILLS):
            wait_for_rounds(clients, 1)
            time.sleep(0.03 * kill)
            server.kill()
            server = start("--listen", path)
        wait_for_rounds(clients, 2)
    finally:
        statuses = [client.stop() for client in clients]
    assert statuses == [0] * CLIENTS
    lines = [line for client in clients for line in client.lines]
    failures = sum(int(client.lines[-1][2]) for client in clients)
    print(f"{len(lines)} rounds, {failures} tried again")
    assert failures > 0
    assert len({artefact for artefact, _, _ in lines}) == 1
    assert {cache for _, cache, _ in lines} == {hashlib.sha256(SAMPLE.read_bytes()).hexdigest()}
    for client in clients:
        assert {file.name for file in client.folder.iterdir()} == {"artefact", "cache"}
    assert server.check() == SERVING
