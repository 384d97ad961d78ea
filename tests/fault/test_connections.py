# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Connections that are cut, stall, or crawl: no half result, no call left behind."""

import json
import random
import re
import struct
import time
from pathlib import Path

import pytest
from calls import metric
from command_line import CommandLine
from health import SERVING
from proxy import DOWN, UP, Faults, Proxy
from server_process import PATIENCE, ServerProcess, Start

import kvcompress

SAMPLE = Path(__file__).parents[1] / "data" / "smollm2_kjv_96_bf16.safetensors"
# Bytes after which connections are cut: the preface, the first frames, and on to the end.
STAGES = [0, 1, 24, 60, 300, 2_000, 17_000, 66_000, 300_000, 1_000_000, 1_600_000, 2_000_000]


def wait_until_idle(server: ServerProcess) -> None:
    """Waits until every call has ended, and given back what it held."""
    give_up = time.monotonic() + PATIENCE
    while True:
        page = server.get("/metrics")[2]
        totals = [
            sum(float(value) for value in re.findall(rf"^{name}{{.*}} (\S+)$", page, re.MULTILINE))
            for name in ("grpc_server_started_total", "grpc_server_handled_total")
        ]
        if totals[0] == totals[1] and metric(server, "kvcompress_inflight_bytes") == 0:
            return
        assert time.monotonic() < give_up, totals
        time.sleep(0.05)


@pytest.fixture
def reference(kv_compress: CommandLine, tmp_path: Path) -> bytes:
    """The artefact of the sample."""
    assert kv_compress("-input", SAMPLE, "-output", "reference").returncode == 0
    data = (tmp_path / "reference").read_bytes()
    (tmp_path / "reference").unlink()
    return data


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "closed"])
@pytest.mark.parametrize("direction", [UP, DOWN], ids=["requests", "responses"])
def test_connection_cut_at_every_stage(
    start: Start, kv_compress: CommandLine, tmp_path: Path, direction: int, reset: bool
) -> None:
    """The client fails and leaves no file; the server forgets the call and serves the next."""
    server = start()
    with Proxy(server.addresses[0]) as proxy:
        for stage in STAGES:
            cut = (stage, None) if direction == UP else (None, stage // 4)
            proxy.faults = Faults(cut=cut, reset=reset)
            done = kv_compress("-input", SAMPLE, "-output", "out", "-server", proxy.address)
            assert (done.returncode, done.stdout) == (1, ""), (stage, done)
            assert f"Error: server {proxy.address}: " in done.stderr, done.stderr
            assert list(tmp_path.iterdir()) == []
            wait_until_idle(server)
        proxy.faults = Faults()
        assert (
            kv_compress("-input", SAMPLE, "-metrics-only", "-server", proxy.address).returncode == 0
        )
    assert server.check() == SERVING


def test_restoring_over_a_connection_that_is_cut(
    start: Start, kv_compress: CommandLine, reference: bytes, tmp_path: Path
) -> None:
    """What came before the cut is not taken for the cache."""
    server = start()
    (tmp_path / "artefact").write_bytes(reference)
    with Proxy(server.addresses[0]) as proxy:
        for stage in STAGES:
            proxy.faults = Faults(cut=(None, stage))
            done = kv_compress(
                *("-decompress", "-input", "artefact", "-output", "out", "-server", proxy.address)
            )
            assert done.returncode == 1, (stage, done)
            assert [path.name for path in tmp_path.iterdir()] == ["artefact"]
    wait_until_idle(server)


def test_python_client_over_a_connection_that_is_cut(start: Start, tmp_path: Path) -> None:
    """An exception that says so, and no file."""
    server = start()
    with Proxy(server.addresses[0]) as proxy:
        for stage in STAGES[2:]:
            proxy.faults = Faults(cut=(stage, None))
            failing = pytest.raises(kvcompress.UnavailableError)
            with kvcompress.Client(proxy.address, attempts=1) as client, failing:
                client.compress(SAMPLE, tmp_path / "out", codec="int4")
            assert list(tmp_path.iterdir()) == []
    wait_until_idle(server)


@pytest.mark.parametrize("direction", [UP, DOWN], ids=["requests", "responses"])
def test_connection_on_which_nothing_moves_any_more(start: Start, direction: int) -> None:
    """A peer that is there and silent: both ends give up, each by its own limit."""
    server = start("--stall-seconds", "1")
    with Proxy(server.addresses[0]) as proxy:
        for stage in (300, 66_000, 300_000):
            stall = (stage, None) if direction == UP else (None, stage // 4)
            proxy.faults = Faults(stall=stall)
            with kvcompress.Client(proxy.address, attempts=1, timeout=2) as client:
                with pytest.raises(kvcompress.KVCompressError) as caught:
                    client.compress(SAMPLE, codec="int4")
                assert caught.value.code in {"DEADLINE_EXCEEDED", "CANCELLED"}
            wait_until_idle(server)
    assert server.check() == SERVING


def test_seven_bytes_at_a_time(start: Start, tmp_path: Path) -> None:
    """However the bytes arrive, they are the same, there and back."""
    cache = small_cache()
    source, out, back = tmp_path / "in", tmp_path / "out", tmp_path / "back"
    source.write_bytes(cache)
    crumbs = Faults(piece=7)
    with Proxy(start().addresses[0], crumbs) as proxy, kvcompress.Client(proxy.address) as client:
        client.compress(source, out, codec="lossless")
        client.decompress(out, back)
        assert min(proxy.passed) > len(cache)
    assert back.read_bytes() == cache


def test_a_slow_line(start: Start, reference: bytes, tmp_path: Path) -> None:
    """It takes longer, and produces the same artefact."""
    slow = Faults(piece=1 << 15, pause=0.005)
    with Proxy(start().addresses[0], slow) as proxy, kvcompress.Client(proxy.address) as client:
        client.compress(SAMPLE, tmp_path / "out", codec="int4")
    assert (tmp_path / "out").read_bytes() == reference


def small_cache() -> bytes:
    """A file of one tensor of noise."""
    size = 20_000
    tensor = {"dtype": "BF16", "shape": [1, 1, 100, 100], "data_offsets": [0, size]}
    text = json.dumps({"layer_0_key": tensor}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + random.Random(1).randbytes(size)
