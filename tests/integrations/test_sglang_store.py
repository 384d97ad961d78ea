# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What SGLang sees of the store of kvcompress.integrations.sglang: capacity, statistics, clear."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sglang_package

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")
if not sglang_package.prepare():
    pytest.skip("sglang is not installed", allow_module_level=True)

from sglang_pools import KEYS, PAGE, PAGES, Make, artefacts, make, pool_of  # noqa: E402

__all__ = ["make"]


def test_capacity_and_status(make: Make, tmp_path: Path) -> None:
    """Pages that were not used for longest are evicted, and are misses."""
    places, pool = torch.arange(PAGES * PAGE), pool_of("mha", "page_first")
    backend = make(pool, artefact_tokens=PAGE, capacity_bytes=2 * (PAGES - 2) * 4096 + 40_000)
    assert all(backend.batch_set_v1(KEYS, places))
    status = backend.report_status()
    assert status["held_bytes"] <= status["capacity_bytes"] == 2 * (PAGES - 2) * 4096 + 40_000
    assert status["evicted"] == status["evicted_unread"] >= 1
    there = [backend.exists(key) for key in KEYS]
    assert there == sorted(there), "the oldest went"
    assert len(artefacts(tmp_path)) == sum(there) == status["held_artefacts"]


def test_statistics_are_sglangs(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages and GB/s of each batch since the last call, in SGLang's own class."""
    places, pool = torch.arange(PAGES * PAGE), pool_of("mha", "page_first")
    backend = make(pool)
    assert all(backend.batch_set_v1(KEYS, places))
    assert backend.get_stats() is None, "SGLang does not want them"
    monkeypatch.setattr(backend._config, "enable_storage_metrics", True)
    name = "sglang.srt.observability.metrics_collector"
    monkeypatch.setitem(sys.modules, name, sglang_package.part(name, "StorageMetrics"))
    stats = backend.get_stats()
    assert type(stats).__name__ == "StorageMetrics"
    assert (stats.prefetch_pgs, stats.backup_pgs) == ([], [PAGES])
    assert len(stats.backup_bandwidth) == 1
    assert all(backend.batch_set_v1(KEYS, places)), "there already: nothing is moved"
    assert backend.batch_get_v1([*KEYS[:2], "0" * 64], places[: 3 * PAGE]) == [True, True, False]
    stats = backend.get_stats()
    assert (stats.prefetch_pgs, stats.backup_pgs) == ([2], [])
    assert stats.prefetch_bandwidth[0] > 0


def test_clear(make: Make, tmp_path: Path) -> None:
    """What this model has, of all its pools; not what others have."""
    places, pool = torch.arange(PAGES * PAGE), pool_of("mha", "page_first")
    backend, other = make(pool), make(pool, model="org/other")
    for each in (backend, other):
        assert all(each.batch_set_v1(KEYS, places))
    assert backend.clear()
    assert (backend.batch_exists(KEYS), other.batch_exists(KEYS)) == (0, PAGES)
    assert len(artefacts(tmp_path)) == 1
    assert all(backend.batch_set_v1(KEYS, places))


def test_pairs_that_must_not_hit(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row differs from the first engine in one thing; the first one itself hits again."""
    commits = {"main": "0" * 40, "v2": "1" * 40}
    references = tmp_path / "hub" / "models--org--tiny" / "refs"
    references.mkdir(parents=True)
    for name, commit in commits.items():
        (references / name).write_text(commit)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    context = sglang_package.module("runtime_context")
    pool, places = pool_of("mha", "page_first"), torch.arange(PAGES * PAGE)

    def engine(revision: str | None = None, path: str = "org/tiny", **options: object) -> Any:  # noqa: ANN401
        arguments = SimpleNamespace(model_path=path, revision=revision)
        monkeypatch.setattr(context, "get_server_args", lambda: arguments)
        return make(options.pop("pool", pool), **options)

    assert all(engine().batch_set_v1(KEYS, places))
    assert engine().batch_exists(KEYS) == PAGES
    assert engine(commits["main"]).batch_exists(KEYS) == PAGES, "the same commit by its name"
    others: dict[str, dict[str, Any]] = {
        "revision": {"revision": "v2"},
        "commit": {"revision": commits["v2"]},
        "path of which nothing is known": {"path": "org/other"},
        "served name": {"model": "org/other"},
        "rank": {"rank": 1},
        "latents": {"pool": pool_of("mla", "page_first")},
        "element type": {"pool": pool_of("mha", "page_first", dtype=torch.float16)},
        "version of the weights": {"identity": {"weights": "2"}},
    }
    for name, options in others.items():
        assert engine(**options).batch_exists(KEYS) == 0, name


def test_other_weights_at_the_same_path_are_misses(make: Make, tmp_path: Path) -> None:
    places, pool = torch.arange(PAGES * PAGE), pool_of("mha", "page_first")
    model = tmp_path / "model"
    model.mkdir()
    weights = model / "model.safetensors"
    weights.write_bytes(bytes(100_000))
    assert all(make(pool, model=str(model)).batch_set_v1(KEYS, places))
    assert make(pool, model=str(model)).batch_exists(KEYS) == PAGES
    found = weights.stat()
    weights.write_bytes(b"\x01" + bytes(99_999))
    os.utime(weights, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert make(pool, model=str(model)).batch_exists(KEYS) == 0


def test_what_cannot_succeed_is_tried_once(make: Make) -> None:
    """As where the server has no such profile: it is not asked with every request."""
    places, pool = torch.arange(PAGES * PAGE), pool_of("mha", "page_first")
    backend = make(pool, codec="klt:max", profile="nobody's", artefact_tokens=PAGE)
    assert not any(backend.batch_set_v1(KEYS, places))
    assert not any(backend.batch_set_v1(KEYS, places))
    assert backend.report_status()["failed"] == 1


def test_folder_that_cannot_be_written(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine starts, finds what is there, and stores nothing."""
    places, pool = torch.arange(PAGES * PAGE), pool_of("mha", "page_first")
    assert all(make(pool).batch_set_v1(KEYS[:2], places[: 2 * PAGE]))
    monkeypatch.setattr(os, "access", lambda *_: False)
    backend = make(pool)
    assert backend.batch_set_v1(KEYS, places) == [True] * 2 + [False] * 4
    assert backend.batch_get_v1(KEYS, places) == [True] * 2 + [False] * 4


def test_log_lines_of_sglang() -> None:
    """The format that kvcompress.integrations._logs knows, to which it adds level and name."""
    common = Path(sys.modules["sglang"].__path__[0], "srt", "utils", "common.py").read_text()
    assert 'format = f"[%(asctime)s{maybe_ms}{prefix}] %(message)s"' in common
