# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A system that provides no more threads: at the start, while the server runs, and at its end.

std::terminate ended the process. gRPC says nothing when it gets no thread: a server could start,
and answer nobody.
"""

import os
import resource
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import server_process
from calls import MIB, cache, wait_until_released
from health import SERVING
from server_process import PATIENCE, ServerProcess, Start, wait_until

import kvcompress
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

SAMPLE = Path(__file__).parents[1] / "data" / "smollm2_kjv_96_bf16.safetensors"
THREADS = resource.RLIMIT_NPROC
ENOUGH = 4096
CLIENTS = 16

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0,
    reason="the limit counts all threads of a user: needs root, to become another",
)


@pytest.mark.parametrize("most", [1, 2, 4, 8, 12, 16, 20, 24, 28])
def test_too_few_at_the_start(most: int) -> None:
    """An error that says what to raise, and an exit status."""
    listen = ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]
    ended = server_process.run_within({THREADS: most}, *listen)
    assert ended.returncode == 1, ended.stderr
    assert "Raise the limit on them: ulimit -u" in ended.stderr
    assert "terminate" not in ended.stderr


def allow(server: ServerProcess, threads: int) -> None:
    """From now on the server may start threads while it has fewer."""
    limit = ["prlimit", "--pid", str(server.pid), f"--nproc={threads}:{ENOUGH}"]
    subprocess.run([*server_process.as_somebody(), *limit], check=True)


def compress(server: ServerProcess, address: str) -> grpc.StatusCode:
    """What another client's call for a cache of four messages ends with."""
    with server.channel(address) as channel:
        try:
            list(CompressionServiceStub(channel).Compress(cache(4 * MIB), timeout=PATIENCE))
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
    return grpc.StatusCode.OK


def check_service(server: ServerProcess) -> None:
    """Asks whether a cache comes back as it was, and health says that it does."""
    with kvcompress.Client(server.addresses[0], timeout=PATIENCE) as client:
        artefact = client.compress(SAMPLE, codec="lossless").artefact
        assert artefact is not None
        assert client.decompress(artefact).safetensors == SAMPLE.read_bytes()
    assert server.check() == SERVING
    assert server.get("/healthz")[0] == 200


def test_none_while_it_runs(start: Start, tmp_path: Path) -> None:
    """Calls are served by the threads that there are, or refused; then all is as before."""
    listen = ["--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/socket"]
    server = start(*listen, limits={THREADS: ENOUGH})
    allow(server, 1)
    with ThreadPoolExecutor(CLIENTS) as threads:
        for _ in range(4):
            addresses = [server.addresses[i % 2] for i in range(CLIENTS)]
            codes = set(threads.map(lambda address: compress(server, address), addresses))
            assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    print(f"with no further thread: {codes}")
    # Health is accurate: SERVING, and calls are.
    check_service(server)
    allow(server, ENOUGH)
    wait_until(lambda: compress(server, server.addresses[1]) == grpc.StatusCode.OK)
    wait_until_released(server)
    check_service(server)
    assert server.send_and_wait()[0] == 0


def test_none_at_its_end(start: Start) -> None:
    """It ends as ever, with the call that runs."""
    server = start(limits={THREADS: ENOUGH})
    check_service(server)
    allow(server, 1)
    assert server.send_and_wait()[0] == 0
    assert not any("terminate" in line for line in server.lines)
