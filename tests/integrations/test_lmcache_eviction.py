# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What LMCache sees of the store of kvcompress.integrations.lmcache: capacity, eviction, keys."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("lmcache", reason="lmcache is not installed")

from lmcache_adapter import MakeAdapter, found, make, store  # noqa: E402
from lmcache_objects import HEAD_DIM, KEY, memory, states  # noqa: E402

from kvcompress.integrations._lmcache_chunks import _weights  # noqa: E402

__all__ = ["make"]
SPLIT: dict[str, object] = {"layout": "kv", "head_dim": HEAD_DIM}


def keys_of(count: int) -> list[Any]:
    """Keys of one model."""
    return [replace(KEY, chunk_hash=bytes([number]) * 32) for number in range(count)]


def test_capacity(make: MakeAdapter) -> None:
    """The store evicts by itself, and LMCache hears of it; a chunk that is locked stays."""
    adapter, keys = make(codec="int8", capacity_bytes=4 * 4096, **SPLIT), keys_of(6)
    gone: list[Any] = []
    adapter.register_listener(Listener(gone))
    assert adapter.supports_global_eviction
    for key in keys[:3]:
        assert store(adapter, memory(states(2, 1, 32, 32)), key=key)
    assert found(adapter, keys[0]), "which locks it"
    for key in keys[3:]:
        assert store(adapter, memory(states(2, 1, 32, 32)), key=key)
    status = adapter.report_status()
    assert status["held_bytes"] <= status["max_capacity_bytes"] == 4 * 4096
    assert status["evictions"] == {"capacity": len(gone)}
    assert keys[0] not in gone
    assert gone[0] == keys[1]
    assert [found(adapter, key) for key in keys] == [key not in gone for key in keys]
    assert sum(adapter.get_usage().bytes_by_cache_salt.values()) == (6 - len(gone)) * the_size(
        adapter
    )


class Listener:
    """Hears of keys as LMCache's eviction policy does."""

    def __init__(self, gone: list[Any]) -> None:
        """Takes the list of keys that are deleted."""
        self._gone = gone

    def on_l2_keys_stored(self, _: list[Any], __: list[int]) -> None:
        """Ignores them."""

    def on_l2_keys_accessed(self, _: list[Any]) -> None:
        """Ignores them."""

    def on_l2_keys_deleted(self, keys: list[Any]) -> None:
        """Notes them."""
        self._gone += keys


def the_size(adapter: Any) -> int:  # noqa: ANN401
    """Bytes of each of an adapter's chunks, which have one size."""
    status = adapter.report_status()
    return int(status["stored_bytes"] // status["stored"])


def test_eviction_of_lmcache(make: MakeAdapter) -> None:
    """LMCache's own controller sees the usage, and has the adapter delete what its policy says."""
    storage = "lmcache.v1.distributed"
    control = importlib.import_module(f"{storage}.storage_controllers.eviction_controller")
    settings = importlib.import_module(f"{storage}.config")
    adapter, keys = make(codec="int8", capacity_bytes=10 * 4096, **SPLIT), keys_of(5)
    wanted = {"trigger_watermark": 0.5, "eviction_ratio": 0.4}
    config = settings.EvictionConfig(eviction_policy="LRU", **wanted)
    state = control.L2AdapterEvictionState(0, adapter, config)
    for key in keys:
        assert store(adapter, memory(states(2, 1, 32, 32)), key=key)
    before = adapter.get_usage()
    assert before.usage_fraction >= 0.5
    controller = object.__new__(control.L2EvictionController)
    controller._check_and_evict_global(state)
    assert adapter.get_usage().total_bytes_used < before.total_bytes_used
    there = [found(adapter, key) for key in keys]
    assert there == sorted(there), "the oldest went"
    assert there.count(False) == 2


def test_keys_are_listed(make: MakeAdapter) -> None:
    """In pages, by model, also those of another server, and what is no chunk of LMCache's not."""
    adapter, keys = make(codec="int8", **SPLIT), keys_of(5)
    other = replace(KEY, model_name="org/other")
    for key in (*keys, other):
        assert store(adapter, memory(states(2, 1, 32, 32)), key=key)
    later, found_keys, cursor = make(codec="int8", **SPLIT), list[Any](), None
    while True:
        page = later.list_l2_keys(KEY.model_name, page_size=2, cursor=cursor)
        assert len(page.entries) <= 2
        found_keys += [entry.key for entry in page.entries]
        assert all(entry.size_bytes >= 4096 for entry in page.entries)
        cursor = page.next_page_token
        if cursor is None:
            break
    assert {*found_keys} == {key.to_encoded_object_key() for key in keys}
    assert len(later.list_l2_keys().entries) == 6
    with pytest.raises(ValueError, match="page_size is 0"):
        later.list_l2_keys(page_size=0)
    remote = make(path=None, url="memory://kvcompress/keys", codec="int8", **SPLIT)
    with pytest.raises(NotImplementedError, match="in a folder"):
        remote.list_l2_keys()


def test_pairs_that_must_not_hit(
    make: MakeAdapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row differs in one thing from the server that stored the chunk; that one hits again.

    Weights are those of a server that starts, as LMCache's own memory knows the name alone.
    """
    folder, hub = tmp_path / "model", tmp_path / "hub"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(bytes(100_000))
    reference = hub / "models--org--tiny" / "refs" / "main"
    reference.parent.mkdir(parents=True)
    reference.write_text("0" * 40)
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    changes: dict[str, Callable[[], object]] = {
        "weights": lambda: (folder / "model.safetensors").write_bytes(bytes(99_999) + b"\x01"),
        "one more file": lambda: (folder / "adapter.safetensors").write_bytes(b""),
        "commit": lambda: reference.write_text("1" * 40),
    }
    models = {"commit": "org/tiny"}
    for name, change in changes.items():
        _weights.cache_clear()
        key = replace(KEY, model_name=models.get(name, str(folder)))
        options = {**SPLIT, "codec": "int8", "identity": {"of": name}}
        assert store(make(**options), memory(states(2, 1, 32, 32)), key=key)
        assert found(make(**options), key), name
        assert len(make(**options).list_l2_keys(key.model_name).entries) == 1
        for field, value in (
            ("model_name", "org/another"),
            ("kv_rank", key.kv_rank + 1),
            ("object_group_id", key.object_group_id + 1),
            ("cache_salt", "another"),
        ):
            assert not found(make(**options), replace(key, **{field: value})), field
        other = make(**{**options, "identity": {"of": "another"}})
        assert not found(other, key)
        change()
        _weights.cache_clear()
        later = make(**options)
        assert not found(later, key), name
        assert not later.list_l2_keys(key.model_name).entries, name


def test_what_cannot_succeed_is_tried_once(
    make: MakeAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = make(codec="klt:max", profile="nobody's", **SPLIT)
    source = memory(states(2, 1, 32, 32))
    assert not store(adapter, source)
    monkeypatch.setattr(adapter._service, "compress", None)
    assert not store(adapter, source)
    assert adapter.report_status()["store_failures"] == 2
