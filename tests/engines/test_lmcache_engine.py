# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""vLLM with `lmcache server`: hits after all were started anew, and nothing else if broken.

An engine takes most of the time that a test has, so that all of them share two: one that stores,
and one that is given what was stored. LMCache has three L2 adapters, all of which it stores to.
A test leaves files in one, so that a hit can come from no other.
"""

import errno
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from processes import GENERATED, REPOSITORY, Daemon, Engine, LMCache

import kvcompress

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CHUNK_TOKENS = 256
LONG, RETRY_AFTER = 120, 1  # seconds
TRIES = 3
AGREED = 4  # tokens that are the same after a hit, in bfloat16
LAYOUT = {"layout": "cpu_attn", "head_dim": 64, "block_tokens": 128}
PROMPT = (REPOSITORY / "core" / "FORMAT.md").read_text()[4000:5600]


class Deployment:
    """The servers and an engine, on folders that stay when all of them are started anew."""

    def __init__(self, folder: Path, model: str) -> None:
        """Makes the folders."""
        self.folder, self._model = folder, model
        self.caches = {name: folder / name for name in ("lossless", "klt", "slots")}
        self.answers: dict[str, dict[str, Any]] = {}
        self.reports: list[dict[str, Any]] = []
        self.chunks = 0
        self.daemon: Daemon
        self.lmcache: LMCache
        self.engine: Engine

    def start(self, stack: ExitStack) -> None:
        """Starts all three."""
        self.daemon = stack.enter_context(Daemon(self.folder))
        self.lmcache = stack.enter_context(LMCache(self.folder, *self.adapters()))
        self.engine = stack.enter_context(Engine(self.folder, self._model, self.lmcache.port))
        stack.callback(self._stop_daemon)
        self.lmcache.ready()
        self.engine.ready()

    def _stop_daemon(self) -> None:
        """Stops the one that a test may have started instead of the first."""
        self.daemon.kill()

    def adapters(self) -> list[dict[str, object]]:
        """What is given to LMCache."""
        common = {**LAYOUT, "server": f"unix:{self.folder}/socket", "retry_after": RETRY_AFTER}
        plugins: list[dict[str, object]] = [
            {
                "type": "plugin",
                "module_path": "kvcompress.integrations.lmcache",
                "class_name": "KVCompressAdapter",
                "adapter_params": {
                    **common,
                    **more,
                    "codec": name,
                    "path": str(self.caches[name]),
                },
            }
            # One waits long enough to see that a call is under way.
            for name, more in (("lossless", {"timeout": LONG}), ("klt", {}))
        ]
        stock: dict[str, object] = {
            "type": "plugin",
            "module_path": "kvcompress.integrations.lmcache_serde",
            "class_name": "StockAdapter",
            "adapter_params": {"type": "fs", "base_path": str(self.caches["slots"])},
            "serde": {**common, "type": "kvcompress", "ratio": 4},
        }
        return [*plugins, stock]

    def files(self, name: str) -> list[Path]:
        """The chunks of a cache."""
        found = self.caches[name].rglob("*")
        return sorted(path for path in found if path.suffix in {".safetensors", ".data"})

    def keep_only(self, name: str | None) -> None:
        """Leaves in one cache what was stored at first, in the others nothing."""
        self.lmcache.clear()  # which waits for stores
        for each, folder in self.caches.items():
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if each == name:
                shutil.copytree(self.folder / "kept" / each, folder, dirs_exist_ok=True)

    def ask(self) -> dict[str, Any]:
        """Asks the engine, with nothing in LMCache's memory."""
        self.lmcache.clear()
        return self.engine.generate(PROMPT)


@pytest.fixture(scope="module")
def first(model: str, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """What is left when an engine has stored a prompt and everything has ended."""
    deployment = Deployment(tmp_path_factory.mktemp("lmcache"), model)
    with ExitStack() as stack:
        deployment.start(stack)
        computed = deployment.answers["computed"] = deployment.ask()
        deployment.chunks = computed["prompt_tokens"] // CHUNK_TOKENS
        assert deployment.chunks >= 2, "several chunks, of which the last tokens are none"

        def stored() -> bool:
            deployment.reports = deployment.lmcache.statuses()
            counted = all(each["stored"] >= deployment.chunks for each in deployment.reports[:2])
            return counted and len(deployment.files("slots")) >= deployment.chunks

        deployment.lmcache.wait(stored, "chunks in every cache")
    for name, folder in deployment.caches.items():
        shutil.copytree(folder, deployment.folder / "kept" / name)
    return deployment


@pytest.fixture(scope="module")
def second(first: Deployment) -> Iterator[Deployment]:
    """The same, started anew, on what was stored."""
    with ExitStack() as stack:
        first.start(stack)
        yield first


def hit(deployment: Deployment, answer: dict[str, Any]) -> bool:
    """Whether the chunks of the prompt came from the cache; nothing else than all or none."""
    assert answer["cached_tokens"] in {0, deployment.chunks * CHUNK_TOKENS}
    return bool(answer["cached_tokens"])


def test_first_engine_computes_and_stores(first: Deployment) -> None:
    """With klt in a quarter of the space, or less; in slots exactly."""
    computed = first.answers["computed"]
    assert not hit(first, computed)
    assert len(computed["tokens"]) == GENERATED
    lossless, klt, _ = first.reports
    assert lossless["stored"] == klt["stored"] == first.chunks
    ratio = klt["source_bytes"] / klt["stored_bytes"]
    print(f"lossless {lossless['source_bytes'] / lossless['stored_bytes']:.2f}x, klt {ratio:.2f}x")
    assert ratio >= 4
    sizes = {path.stat().st_size for path in first.files("slots")}
    assert sizes == {klt["source_bytes"] // first.chunks // 4}


def test_hit_with_the_same_answer(second: Deployment) -> None:
    """Every token is the one after a hit in LMCache's own memory.

    In bfloat16 an answer that is computed can differ from that after some tokens: the engine
    computes the prompt in one piece, and after any hit its end alone.
    """
    second.keep_only(None)
    recomputed(second)
    resumed = second.engine.generate(PROMPT)
    assert hit(second, resumed)
    second.keep_only("lossless")
    answer = second.ask()
    assert hit(second, answer)
    assert second.lmcache.statuses()[0]["loaded"] == second.chunks
    assert answer["tokens"] == resumed["tokens"]
    computed = second.answers["computed"]["tokens"]
    assert answer["tokens"][:AGREED] == computed[:AGREED]


@pytest.mark.parametrize("name", ["klt", "slots"])
def test_hit_that_is_smaller(second: Deployment, name: str) -> None:
    """The answer is near: at least it begins in the same way."""
    second.keep_only(name)
    answer = second.ask()
    assert hit(second, answer)
    assert answer["tokens"][0] == second.answers["computed"]["tokens"][0]


def recomputed(deployment: Deployment) -> float:
    """Requires that the engine computes what it computed without a cache; returns the seconds."""
    answer = deployment.ask()
    assert not hit(deployment, answer)
    assert answer["tokens"] == deployment.answers["computed"]["tokens"]
    return float(answer["seconds"])


def test_damage(second: Deployment) -> None:
    """All chunks are damaged, and the request is computed; then they are there again."""
    second.keep_only("lossless")
    damaged = second.files("lossless")
    for path in damaged:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    recomputed(second)
    assert second.lmcache.statuses()[0]["damaged"] == second.chunks
    second.lmcache.wait(lambda: second.files("lossless") == damaged, "chunks stored again")
    assert hit(second, second.ask())


def test_artefact_of_another_model(second: Deployment) -> None:
    """Bound to another model, with the same shapes and under the same name."""
    second.keep_only("lossless")
    before = second.lmcache.statuses()[0]["damaged"]
    with kvcompress.Client(second.daemon.target) as client:
        for path in second.files("lossless"):
            labels = client.decompress(path, verify_only=True).report.labels
            restored = client.decompress(path).torch_tensors()
            other = client.compress(
                restored,
                codec="lossless",
                layout="lph2sd",
                labels={**labels, "lmcache.model": "org/other"},
            ).artefact
            assert other is not None
            path.write_bytes(other)
    recomputed(second)
    assert second.lmcache.statuses()[0]["damaged"] == before + second.chunks


def test_full_disk(second: Deployment) -> None:
    """The request is served, and nothing is stored."""
    second.keep_only(None)
    folder, before = second.caches["lossless"], second.lmcache.statuses()[0]["store_failures"]
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        recomputed(second)

        def failed() -> bool:
            return bool(second.lmcache.statuses()[0]["store_failures"] >= before + second.chunks)

        second.lmcache.wait(failed, "failed stores")
        assert not second.files("lossless")
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
    assert f"[Errno {errno.ENOSPC}]" in second.lmcache.log.read_text(errors="replace")


@pytest.fixture
def restarted(second: Deployment) -> Iterator[Deployment]:
    """Starts a server that a test may freeze and kill, and another one after it."""
    yield second
    second.daemon.kill()
    second.daemon = Daemon(second.folder)


def hits_again(deployment: Deployment, name: str) -> None:
    """Waits for a hit."""
    deployment.keep_only(name)
    deployment.lmcache.wait(lambda: hit(deployment, deployment.ask()), "hit with a new server")


def asked_without(deployment: Deployment, name: str | None, number: int | None = None) -> float:
    """Asks with what a cache has, while the server has a signal; returns the seconds."""
    deployment.keep_only(name)
    time.sleep(RETRY_AFTER)  # or nothing is asked of a server that did not answer
    if number is not None:
        deployment.daemon.signal(number)
    return recomputed(deployment)


@pytest.mark.parametrize("name", ["klt", "slots"])
def test_server_that_hangs_costs_a_second(restarted: Deployment, name: str) -> None:
    """At most, in addition to what the prompt takes to compute; the same where it has ended.

    Others use the processors as well, so that each is tried several times.
    """
    hits_again(restarted, name)
    computed, frozen, killed = [], [], []
    for _ in range(TRIES):
        computed.append(asked_without(restarted, None))
        frozen.append(asked_without(restarted, name, signal.SIGSTOP))
        restarted.daemon.signal(signal.SIGCONT)
    for _ in range(TRIES):
        killed.append(asked_without(restarted, name, signal.SIGKILL))
    print(f"computed {computed}, frozen {frozen}, killed {killed}")
    assert min(frozen) <= max(computed) + 1
    assert min(killed) <= max(computed) + 1


def test_server_killed_in_a_call_costs_a_second(restarted: Deployment) -> None:
    """It is computed as soon as the server has gone, however long the call might take."""
    before = restarted.lmcache.statuses()[0]["unavailable"]
    computed, waited = [], []
    for _ in range(TRIES):
        hits_again(restarted, "lossless")
        computed.append(asked_without(restarted, None))
        restarted.keep_only("lossless")
        restarted.daemon.freeze()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(recomputed, restarted)
            with pytest.raises(TimeoutError):  # the call is under way
                asked.result(2 * max(computed) + 2)
            restarted.daemon.kill()
            began = time.monotonic()
            asked.result(LONG)
        waited.append(time.monotonic() - began)
        restarted.daemon = Daemon(restarted.folder)
    print(f"computed {computed}, {waited} after the server was killed")
    assert min(waited) <= max(computed) + 1
    assert restarted.lmcache.statuses()[0]["unavailable"] >= before + TRIES


def test_hits_again_with_a_new_server(restarted: Deployment) -> None:
    for name in restarted.caches:
        hits_again(restarted, name)
