# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Starting the real server for a test."""

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2

START_SECONDS = 30
STOP_SECONDS = 30


@dataclass(frozen=True)
class Server:
    """A running kv-compressd.

    Attributes:
        target: Its TCP address, as gRPC writes it.
        unix_target: Its unix socket, as gRPC writes it.
        metrics_address: `host:port` of /metrics and /healthz.
        process: The process.
        log: The file with what it printed.
    """

    target: str
    unix_target: str
    metrics_address: str
    process: subprocess.Popen[bytes]
    log: Path


def free_port() -> int:
    """Returns a TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_serving(target: str, timeout: float = 5) -> bool:
    """Returns whether a server reports SERVING within `timeout` seconds of a call."""
    with grpc.insecure_channel(target) as channel:
        try:
            return health(channel, timeout=timeout) == health_pb2.HealthCheckResponse.SERVING
        except grpc.RpcError:
            return False


def health(channel: grpc.Channel, service: str = "", timeout: float = 10) -> int:
    """Asks grpc.health.v1 for the status of a service.

    Raises:
        grpc.RpcError: The call failed.
    """
    check = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        health_pb2.HealthCheckRequest.SerializeToString,
        health_pb2.HealthCheckResponse.FromString,
    )
    return int(check(health_pb2.HealthCheckRequest(service=service), timeout=timeout).status)


@contextmanager
def running_server(bin_dir: Path, *arguments: str) -> Iterator[Server]:
    """Runs kv-compressd on a free TCP port and a unix socket until the block ends.

    Args:
        bin_dir: Directory of the binaries.
        arguments: More flags.

    Yields:
        The server, once it says SERVING.

    Raises:
        RuntimeError: It ended early, did not become SERVING, or did not end with 0 on SIGTERM.
    """
    with tempfile.TemporaryDirectory(prefix="kvc-") as directory:
        target, metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        unix_target, log = f"unix:{directory}/s", Path(directory) / "log"
        command = [str(bin_dir / "kv-compressd"), "--listen", target, "--listen", unix_target]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--metrics-listen", metrics, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not is_serving(target):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server is not SERVING:\n{log.read_text()}")
                time.sleep(0.05)
            yield Server(target, unix_target, metrics, process, log)
        finally:
            process.terminate()
            try:
                code = process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
        if code != 0:
            raise RuntimeError(f"the server ended with {code}:\n{log.read_text()[-4000:]}")
