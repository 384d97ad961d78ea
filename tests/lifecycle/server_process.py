# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kv-compressd as a process under test."""

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Protocol

import grpc
import health
import pytest

SERVICE = "kvcompress.v1.CompressionService"

# Seconds for a step that takes milliseconds, on a busy machine.
PATIENCE = 20

BINARY = (
    Path(os.environ.get("KVCOMPRESS_BIN_DIR", Path(__file__).parents[2] / "bin")).resolve()
    / "kv-compressd"
)


# Resources that a test may limit, by what prlimit calls them.
LIMITS = {
    resource.RLIMIT_AS: "as",
    resource.RLIMIT_NOFILE: "nofile",
    resource.RLIMIT_NPROC: "nproc",
}
# Root is bound by no limit on threads: what has one runs as a user who has no other processes,
# and may read what root may.
SOMEBODY = 60_000 + os.getpid() % 5_000
CAPABILITIES = "+dac_override,+dac_read_search"


def as_somebody() -> list[str]:
    """What runs a command as that user."""
    program = shutil.which("setpriv") or "setpriv"
    user = [f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups"]
    return [program, *user, f"--inh-caps={CAPABILITIES}", f"--ambient-caps={CAPABILITIES}"]


def within(limits: Mapping[int, int]) -> list[str]:
    """What runs a command within limits: a program, as code of ours must not run after a fork."""
    if not limits:
        return []
    values = [f"--{LIMITS[number]}={value}:{value}" for number, value in limits.items()]
    user = as_somebody() if resource.RLIMIT_NPROC in limits else []
    return [*user, shutil.which("prlimit") or "prlimit", *values]


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """`variables` and the environment, less what would configure the server."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("KVCOMPRESS_")}
    return {**inherited, **variables}


def run(*flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the server to its end: for starts that fail, --help and --version."""
    return run_within({}, *flags, **variables)


def run_within(
    limits: Mapping[int, int], *flags: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The same within limits, of LIMITS."""
    return subprocess.run(
        [*within(limits), BINARY, *flags],
        env=environment(variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def wait_until(holds: Callable[[], bool], what: str = "") -> float:
    """Waits until something holds; the seconds that it took."""
    begin = time.monotonic()
    while not holds():
        assert time.monotonic() - begin < PATIENCE, f"not within {PATIENCE} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - begin


def message_of(line: str) -> str:
    """What a line of the log says; all of one that is not of the log, as a sanitizer's report."""
    try:
        message: str = json.loads(line)["message"]
    except (ValueError, KeyError, TypeError):
        return line.rstrip("\n")
    return message


class ServerProcess:
    """A running server, its log read line by line.

    It listens on ports that the system chose unless `flags` say otherwise.
    """

    def __init__(
        self,
        flags: Sequence[str],
        variables: Mapping[str, str],
        directory: Path,
        limits: Mapping[int, int] | None = None,
    ) -> None:
        """Starts the process in `directory`, within `limits`: soft and hard, of LIMITS."""
        defaults = ["--log-format", "json"]
        for flag in ("--listen", "--metrics-listen"):
            if flag not in flags:
                defaults += [flag, "127.0.0.1:0"]
        self._process = subprocess.Popen(
            [*within(limits or {}), BINARY, *defaults, *flags],
            env=environment(variables),
            cwd=directory,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="backslashreplace",
        )
        self.lines: list[str] = []
        self.messages: list[str] = []
        self.addresses: list[str] = []
        self.http = ""
        self._ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read_log)
        self._reader.start()

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                message = message_of(line)
                with self._changed:
                    self.lines.append(line)
                    self.messages.append(message)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_log(self, text: str) -> str:
        """Waits for a message with `text` in it and returns the first."""
        return self._wait_for(text, self.messages)

    def wait_line(self, text: str) -> str:
        """The same for a line, as it was written."""
        return self._wait_for(text, self.lines)

    def _wait_for(self, text: str, lines: list[str]) -> str:
        with self._changed:
            self._changed.wait_for(
                lambda: self._ended or any(text in line for line in lines), PATIENCE
            )
            matches = [line for line in lines if text in line]
        assert matches, f"no {text!r} in {lines}"
        return matches[0]

    def wait_until_serving(self) -> None:
        """Waits for SERVING and learns the addresses."""
        banner = self.wait_log("listening on")
        found = re.search(r"listening on (.*?); metrics on (\S+);", banner)
        assert found, banner
        self.addresses = found[1].split(", ")
        self.http = found[2]
        self.wait_log("SERVING")

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def descriptors(self) -> set[int]:
        """Those that the process has open."""
        return {int(file.name) for file in Path(f"/proc/{self.pid}/fd").iterdir()}

    def channel(self, address: str | None = None) -> grpc.Channel:
        """A new channel, to the first address unless said otherwise."""
        return grpc.insecure_channel(address or self.addresses[0])

    def check(self, service: str = "", address: str | None = None) -> int:
        """The status that health reports now."""
        with self.channel(address) as channel:
            return health.check(channel, service, PATIENCE)

    def get(self, path: str) -> tuple[int, str, str]:
        """Status, content type and body of an HTTP GET."""
        host, port = self.http.removeprefix("http://").rsplit(":", 1)
        with contextlib.closing(HTTPConnection(host, int(port), timeout=PATIENCE)) as connection:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.headers["Content-Type"], reply.read().decode()

    def send(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self._process.send_signal(number)

    def send_and_wait(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Sends a signal; the exit status, and the seconds it took."""
        begin = time.monotonic()
        self.send(number)
        return self.wait(), time.monotonic() - begin

    def wait(self) -> int:
        """Waits for the end; the exit status."""
        status = self._process.wait(timeout=3 * PATIENCE)
        self._reader.join(PATIENCE)
        return status

    def kill(self) -> None:
        """Ends the process, whatever it is doing."""
        self._process.kill()
        self.wait()


class Start(Protocol):
    """Starts a server with flags and environment variables, and waits for SERVING.

    `limits` are those of resource.RLIMIT_*.
    """

    def __call__(
        self, *flags: str, limits: Mapping[int, int] | None = None, **variables: str
    ) -> ServerProcess:
        """A server that is SERVING."""
        ...


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers with the given flags; they are killed after the test."""
    if not BINARY.exists():
        pytest.fail(f"{BINARY} is not built")
    servers: list[ServerProcess] = []

    def starter(
        *flags: str, limits: Mapping[int, int] | None = None, **variables: str
    ) -> ServerProcess:
        servers.append(ServerProcess(flags, variables, tmp_path, limits))
        servers[-1].wait_until_serving()
        return servers[-1]

    yield starter
    for server in servers:
        server.kill()
