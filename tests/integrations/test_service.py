# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A service that several threads call, and that goes away."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")

import kvcompress  # noqa: E402
from kvcompress.integrations._service import Service  # noqa: E402
from oracle.server import running_server  # noqa: E402

THREADS = 4
TIMEOUT = 0.1
PATIENCE = 60.0


def test_calls_of_several_threads_end(bin_dir: Path) -> None:
    """Each notes that nobody answered, and the service is found again once it goes on."""
    with running_server(bin_dir) as server, ThreadPoolExecutor(THREADS) as pool:
        service = Service(server.unix_target, threads=THREADS)
        states = {"layer_0_key": torch.ones(1, 2, 40, 16)}
        artefact = service.client().compress(states, codec="lossless").artefact
        assert artefact is not None

        def restore() -> bool:
            try:
                service.exchange().restore(artefact, TIMEOUT)
            except (kvcompress.KVCompressError, OSError):
                service.failed()
                return False
            service.succeeded()
            return True

        for _ in range(3):
            while not restore():
                time.sleep(0.1)
            os.kill(server.process.pid, signal.SIGSTOP)
            calls = [pool.submit(restore) for _ in range(5 * THREADS)]
            assert not wait(calls, PATIENCE).not_done
            os.kill(server.process.pid, signal.SIGCONT)
            assert not any(call.result() for call in calls)
            assert service.paused
        service.close()
