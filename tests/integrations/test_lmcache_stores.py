# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Stores of kvcompress.integrations.lmcache that processes share: Redis, and a URL of fsspec."""

import multiprocessing
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("lmcache", reason="lmcache is not installed")
redis = pytest.importorskip("redis", reason="redis is not installed")

from lmcache_adapter import MakeAdapter, adapter_of, found, load, make, store  # noqa: E402
from lmcache_objects import HEAD_DIM, KEY, memory, other_key, states  # noqa: E402

__all__ = ["make"]
REPOSITORY = Path(__file__).parents[2]
OPTIONS: dict[str, Any] = {"layout": "kv", "head_dim": HEAD_DIM, "path": None, "codec": "lossless"}


class Database:
    """A server that speaks Redis's protocol, with nothing on disk."""

    def __init__(self, program: str) -> None:
        """Starts it."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{port}/0"
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
        self.client = redis.Redis.from_url(self.url)
        while True:
            assert self.process.poll() is None, "it ended"
            try:
                self.client.ping()
            except redis.ConnectionError:
                time.sleep(0.05)
            else:
                return

    def keys(self) -> list[bytes]:
        """Returns the keys of all artefacts."""
        return list(self.client.keys("kvcompress:*"))


@pytest.fixture
def database() -> Iterator[Database]:
    """One that a test may kill."""
    tool = [str(REPOSITORY / "tests" / "tools" / "redis")]
    done = subprocess.run(tool, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"there is no Redis: {done.stderr.strip()}")
    made = Database(done.stdout.strip())
    yield made
    made.process.kill()
    made.process.wait()


def chunk() -> Any:  # noqa: ANN401
    """A chunk, the same in every process."""
    return memory(states(2, 1, 32, 32))


def loads_elsewhere(params: dict[str, Any]) -> bool:
    """Whether a new adapter finds the chunk that another process stored, bit for bit."""
    adapter, expected = adapter_of(**params), chunk()
    try:
        loaded = load(adapter, expected) if found(adapter) else None
        return loaded is not None and torch.equal(loaded[0], expected.get_tensor(0))
    finally:
        adapter.close()


@pytest.mark.parametrize("kind", ["redis", "fsspec"])
def test_found_by_another_process(
    make: MakeAdapter,
    server: Any,  # noqa: ANN401
    database: Database,
    tmp_path: Path,
    kind: str,
) -> None:
    url = database.url if kind == "redis" else f"local://{tmp_path}/store"
    assert store(make(url=url, **OPTIONS), chunk())
    params = {**OPTIONS, "url": url, "server": server.target}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        assert pool.submit(loads_elsewhere, params).result(timeout=120)


def test_removed_from_redis(make: MakeAdapter, database: Database) -> None:
    adapter = make(url=database.url, **OPTIONS)
    assert store(adapter, chunk())
    adapter.delete([KEY, other_key("chunk_hash")])
    assert not database.keys()
    assert not found(adapter)


def test_damage_in_redis_is_a_miss(make: MakeAdapter, database: Database) -> None:
    """And what is damaged goes."""
    adapter = make(url=database.url, **OPTIONS)
    assert store(adapter, chunk())
    [key] = database.keys()
    database.client.setrange(key, database.client.strlen(key) // 2, b"\xff\x00\xff")
    assert load(adapter, chunk()) is None
    assert adapter.report_status()["damaged"] == 1
    assert not database.keys()


def test_key_that_expires_is_a_miss(make: MakeAdapter, database: Database) -> None:
    adapter = make(url=database.url, storage_options={"ttl": 1000, "prefix": "a:"}, **OPTIONS)
    assert store(adapter, chunk())
    [key] = database.client.keys("a:*")
    assert 0 < database.client.ttl(key) <= 1000
    database.client.pexpire(key, 1)
    while database.client.exists(key):
        time.sleep(0.001)
    assert not found(adapter)
    assert load(adapter, chunk()) is None
    assert adapter.report_status()["load_failures"] == 0
    assert store(adapter, chunk())
    assert found(adapter)


def test_full_redis(make: MakeAdapter, database: Database) -> None:
    """Stores fail without eviction; with it, an older chunk is a miss."""
    adapter = make(url=database.url, **OPTIONS)
    assert store(adapter, chunk())
    database.client.config_set("maxmemory", 1)
    assert not store(adapter, chunk(), key=other_key("chunk_hash"))
    assert adapter.report_status()["store_failures"] == 1
    assert load(adapter, chunk()) is not None
    database.client.config_set("maxmemory-policy", "allkeys-lru")
    store(adapter, chunk(), key=other_key("chunk_hash"))
    assert load(adapter, chunk()) is None
    assert adapter.report_status()["load_failures"] == 0


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_redis_that_is_away_is_asked_once(
    make: MakeAdapter, database: Database, number: signal.Signals
) -> None:
    """After that nobody waits for it."""
    adapter = make(url=database.url, **OPTIONS)
    assert store(adapter, chunk())
    assert found(adapter)
    database.process.send_signal(number)
    assert load(adapter, chunk()) is None
    assert not found(adapter)
    assert not store(adapter, chunk(), key=other_key("chunk_hash"))
    assert adapter.report_status()["load_failures"] == 1
    with pytest.raises(ConnectionError, match="a moment ago"):
        adapter._store.exists("aa/b")
