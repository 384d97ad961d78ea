# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The processes of a deployment: kv-compressd, LMCache's server, and vLLM."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
BIN = Path(os.environ.get("KVCOMPRESS_BIN_DIR", REPOSITORY / "bin"))
START_SECONDS = 400
GENERATED = 32  # tokens that are compared, greedy

# Seconds between pings of an engine to LMCache's server, and until one counts as lost. With 10, the
# default, a busy machine loses some. LMCache then drops a transfer, reports its end a second time
# after its timeout of 300 seconds, and vLLM ends on an assertion. The server forgets an engine
# that was silent for 120 seconds, its default: three pings.
PING_SECONDS = 40

_ENVIRONMENT = {
    "LMCACHE_TRACK_USAGE": "false",
    "LMCACHE_DISABLE_BANNER": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "HF_HUB_OFFLINE": "1",
}


class Process:
    """A process with its log; killed at the end of a block."""

    def __init__(self, log: Path, *command: object) -> None:
        """Starts it."""
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if self.answers else output,
                stderr=output,
                env={**os.environ, **_ENVIRONMENT},
                start_new_session=True,
            )

    answers = False

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it, with its children."""
        self.kill()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends a signal to it and its children; waits for the end of what was killed."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)
            if number == signal.SIGKILL:
                self.process.wait()

    def fail(self, message: str) -> RuntimeError:
        """Returns an error with the end of the log."""
        return RuntimeError(f"{message}:\n{self.log.read_text(errors='replace')[-5000:]}")

    def wait(self, ready: Callable[[], Any], what: str) -> Any:  # noqa: ANN401
        """Returns the first answer of a function that is true, and no error of the network.

        Raises:
            RuntimeError: The process ended, or it took too long.
        """
        deadline = time.monotonic() + START_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                if result := ready():
                    return result
            except OSError:
                pass
            time.sleep(0.1)
        raise self.fail(f"no {what}")


class Daemon(Process):
    """kv-compressd on a unix socket."""

    def __init__(self, folder: Path) -> None:
        """Starts it and waits until it accepts connections."""
        path = folder / "socket"
        path.unlink(missing_ok=True)
        self.target = f"unix:{path}"
        super().__init__(
            folder / "daemon.log",
            BIN / "kv-compressd",
            "--listen",
            self.target,
            "--metrics-listen=",
        )
        self.wait(path.exists, "socket")

    def signal(self, number: int) -> None:
        """Sends it a signal, unless it has ended; waits until that has come."""
        if number == signal.SIGSTOP:
            self.freeze()
        else:
            self.kill(number)

    def freeze(self) -> None:
        """Stops it without an end, and waits until none of its threads goes on."""
        freeze(self.process.pid)


class LMCache(Process):
    """`lmcache server`, as people start it."""

    def __init__(self, folder: Path, *adapters: Mapping[str, object]) -> None:
        """Starts it with L2 adapters; `ready` waits for it."""
        self.port, self.http_port = free_port(), free_port()
        flags = ["--port", self.port, "--http-port", self.http_port, "--chunk-size", "256"]
        flags += ["--l1-size-gb", "1", "--l1-init-size-gb", "1", "--eviction-policy", "LRU"]
        flags += ["--supported-transfer-mode", "auto"]
        for adapter in adapters:
            flags += ["--l2-adapter", json.dumps(adapter)]
        program = Path(sys.executable).with_name("lmcache")
        super().__init__(folder / "lmcache.log", program, "server", *flags)

    def ready(self) -> None:
        """Waits until it answers."""
        self.wait(lambda: self.get("/healthcheck"), "LMCache")

    def get(self, path: str, data: bytes | None = None) -> Any:  # noqa: ANN401
        """Returns what its HTTP interface answers; with data to a POST."""
        return get(self.http_port, path, data)

    def clear(self) -> None:
        """Empties its memory, so that chunks come from L2; those that are being stored stay."""
        self.wait(lambda: cleared(self.http_port), "memory without chunks")

    def statuses(self) -> list[dict[str, Any]]:
        """Returns what the adapters report, in their order."""
        return list(self.get("/status")["storage_manager"]["l2_adapters"])


def lmcache_options(port: int) -> dict[str, object]:
    """Returns what LMCache's connector is given."""
    return {"lmcache.mp.port": port, "lmcache.mp.heartbeat_interval": PING_SECONDS}


class Engine(Process):
    """vLLM with LMCache's connector."""

    answers = True

    def __init__(self, folder: Path, model: str, port: int) -> None:
        """Starts it; `ready` waits for it."""
        transfer = {
            "kv_connector": "LMCacheMPConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": lmcache_options(port),
        }
        options = {"model": model, "max_model_len": 1024, "kv_transfer_config": transfer}
        program = HERE / "engine.py"
        super().__init__(folder / "engine.log", sys.executable, program, json.dumps(options))

    def ready(self) -> None:
        """Waits until it can generate."""
        self._answer()

    def generate(self, prompt: str, tokens: int = GENERATED) -> dict[str, Any]:
        """Returns what it generates, and where the prompt's cache came from."""
        line = json.dumps({"prompt": prompt, "tokens": tokens}) + "\n"
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        """Reads a line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise self.fail("the engine ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


def get(port: int, path: str, data: bytes | None = None) -> Any:  # noqa: ANN401
    """Returns what LMCache's HTTP interface answers; with data to a POST."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
        return json.load(response)


def cleared(port: int) -> bool:
    """Asks LMCache to empty its memory; returns whether it has."""
    get(port, "/cache/clear", b"{}")
    return bool(get(port, "/status")["storage_manager"]["l1_manager"]["total_object_count"] == 0)


def clear(port: int) -> None:
    """Empties LMCache's memory."""
    while not cleared(port):
        time.sleep(0.1)


def freeze(process: int) -> None:
    """Stops a process without an end, and waits until none of its threads goes on."""
    os.kill(process, signal.SIGSTOP)
    threads = list(Path(f"/proc/{process}/task").glob("*/status"))
    while not all("State:\tT" in each.read_text() for each in threads):
        time.sleep(0.01)


def free_port() -> int:
    """Returns a TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
