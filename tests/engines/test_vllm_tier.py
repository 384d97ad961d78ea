# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""KVCompressTier made by vLLM's own factory and called as its manager calls it, without an engine.

What test_vllm.py does with an engine is not repeated: here are capacity, events and metrics.
"""

import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.slow
if importlib.util.find_spec("vllm") is None:  # to import it takes long
    pytest.skip("vLLM is not installed", allow_module_level=True)

import numpy as np  # noqa: E402
from engine import repair_scan  # noqa: E402
from processes import Daemon  # noqa: E402

repair_scan()

from lookups import are_there  # noqa: E402
from vllm.v1.kv_offload.base import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    Medium,
    ReqContext,
    make_offload_key,
)
from vllm.v1.kv_offload.tiering.base import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    TransferJob,
)
from vllm.v1.kv_offload.tiering.factory import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    SecondaryTierFactory,
)

from kvcompress.integrations._pages import PageLayout  # noqa: E402
from kvcompress.integrations._vllm_adapters import Adapter, new_request  # noqa: E402
from kvcompress.integrations._vllm_layouts import TIER  # noqa: E402

CHUNKS, TOKENS, HEADS, WIDTH = 12, 16, 2, 16
PAGE_BYTES = HEADS * 2 * TOKENS * WIDTH * 2
KEYS = [make_offload_key(bytes([number]) * 32, 0) for number in range(CHUNKS)]
LAYOUT = PageLayout(
    layers=("model.layers.0.attn",),
    offsets=(0,),
    page_bytes=PAGE_BYTES,
    pages=1,
    tokens=TOKENS,
    heads=HEADS,
    width=WIDTH,
    dtype="bfloat16",
    axes="hs2d",
    rank_bytes=PAGE_BYTES,
)
Make = Callable[..., "Tier"]


class Tier:
    """A tier with a primary tier of its own."""

    def __init__(self, folder: Path, server: Daemon, **options: object) -> None:
        """Makes one; `publishing` has vLLM publish events."""
        publishing = bool(options.pop("publishing", False))
        self.rows = np.random.default_rng(0).normal(size=(CHUNKS, PAGE_BYTES // 2))
        self.rows = (self.rows.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        self.view: Any = memoryview(self.rows.view(np.uint8).copy())  # type: ignore[arg-type]
        config = {
            **TIER,
            "folder": str(folder),
            "groups": [{**asdict(LAYOUT), "layers": list(LAYOUT.layers)}],
            "identity": {"model": "org/tiny"},
            "server": server.target,
            "codec": "lossless",
            "artefact_tokens": TOKENS,
            "timeout": 60,
            **options,
        }
        events = SimpleNamespace(enable_kv_cache_events=publishing)
        spec = SimpleNamespace(kv_events_config=events)
        self.own: Any = SecondaryTierFactory.create_secondary_tier(config, self.view, spec)
        self._job = 0

    def context(self, adapter: Adapter | None = None) -> ReqContext:
        """Returns the context of a new request; as vLLM's, it says nothing of the adapter."""
        self._job += 1
        context = ReqContext(req_id=f"request-{self._job}")
        lora = None if adapter is None else SimpleNamespace(lora_path="/adapter")
        adapters: Any = SimpleNamespace(of=lambda _: adapter and adapter.weights)
        with new_request(adapters, SimpleNamespace(lora_request=lora)):
            self.own.on_new_request(context)
        return context

    def move(
        self, numbers: list[int], *, load: bool = False, adapter: Adapter | None = None
    ) -> bool:
        """Saves or loads chunks; returns success."""
        context = self.context(adapter)
        keys, places = [KEYS[number] for number in numbers], np.array(numbers)
        job = TransferJob(self._job, keys, places, load, context)
        (self.own.submit_load if load else self.own.submit_store)(job)
        self.own.drain_jobs()
        [result] = self.own.get_finished_jobs()
        return bool(result.success)

    def there(self, adapter: Adapter | None = None) -> list[bool]:
        """Returns which chunks are found."""
        return are_there(self.own, KEYS, self.context(adapter))

    def metrics(self) -> dict[str, Any]:
        """Returns what was counted, by the ends of the metrics' names."""
        stats = self.own.get_stats()
        prefix = "vllm:kv_offload_kvcompress_"
        assert {*stats._values} <= {*type(self.own).build_metric_definitions({})}
        return {name.removeprefix(prefix): value for name, value in stats._values.items()}


@pytest.fixture
def make(server: Daemon, tmp_path: Path) -> Iterator[Make]:
    """Makes tiers of one folder."""
    made = []

    def make_one(**options: object) -> Tier:
        made.append(Tier(tmp_path / "tier", server, **options))
        return made[-1]

    yield make_one
    for each in made:
        each.own.shutdown()


def test_capacity_is_held_and_told(make: Make) -> None:
    """A third of the chunks fit: those that were not used for longest are misses."""
    capacity = CHUNKS // 3 * 2 * 4096  # an artefact of a page, and its pointer
    tier = make(store={"capacity_bytes": capacity})
    for number in range(CHUNKS):
        assert tier.move([number])
    there = tier.there()
    assert there == sorted(there)
    assert 0 < there.count(True) <= CHUNKS // 3
    metrics = tier.metrics()
    evicted = there.count(False)
    assert metrics["evictions"] == {("capacity",): evicted}
    assert metrics["evicted_unread"] == {(): evicted}
    assert metrics["store_bytes"][()] <= metrics["store_capacity_bytes"][()] == capacity
    assert metrics["store_artefacts"] == {(): there.count(True)}
    assert tier.own.take_events() == (), "vLLM publishes none"

    other = make(store={"capacity_bytes": capacity})
    numbers = [number for number, found in enumerate(there) if found]
    np.asarray(other.view)[:] = 0
    assert other.move(numbers, load=True)
    assert np.array_equal(np.asarray(other.view)[numbers], np.asarray(tier.view)[numbers])
    assert not other.move([0], load=True)
    assert not np.asarray(other.view)[0].any()


def test_events(make: Make) -> None:
    """Of what is stored and removed, once, in vLLM's own form, with medium and locality."""
    tier = make(store={"capacity_bytes": 4 * 3 * 4096}, publishing=True, locality="remote")
    for number in range(CHUNKS):
        assert tier.move([number])
    there: set[bytes] = set()
    removed = 0
    for event in tier.own.take_events():
        assert (event.medium, event.locality.value) == (Medium.STORAGE, "REMOTE")
        assert there.isdisjoint(event.keys) != event.removed
        removed += event.removed
        there = there - {*event.keys} if event.removed else there | {*event.keys}
    assert removed > 0
    assert there == {key for key, found in zip(KEYS, tier.there(), strict=True) if found}
    assert not list(tier.own.take_events())


def test_damage_is_told_as_removed(make: Make, tmp_path: Path) -> None:
    tier = make(publishing=True)
    assert tier.move([0, 1])
    list(tier.own.take_events())
    for path in (tmp_path / "tier").glob("*/artefacts/*/*.safetensors"):
        path.write_bytes(path.read_bytes()[:-100])
    assert not tier.move([0, 1], load=True)
    events = list(tier.own.take_events())
    assert all(event.removed for event in events)
    assert {key for event in events for key in event.keys} == {*KEYS[:2]}
    assert not any(tier.there())
    assert not list((tmp_path / "tier").glob("*/artefacts/*/*.safetensors"))
    assert tier.move([0, 1])


def test_what_the_primary_tier_serves_stays(make: Make) -> None:
    """VLLM touches it; a chunk that is evicted between look-up and load is no failure."""
    tier = make(store={"capacity_bytes": 4 * 2 * 4096})
    for number in range(4):
        assert tier.move([number])
        time.sleep(0.01)
    tier.own.touch(KEYS[:1], tier.context())
    assert tier.move([4]), "behind the touch, on the same threads"
    assert tier.move([5])
    there = tier.there()
    assert there[0]
    assert not there[1]
    assert not tier.move([1], load=True)
    assert "failures" not in tier.metrics()


def test_adapters_have_folders_of_their_own(make: Make) -> None:
    """VLLM's keys have name and path alone; chunks of other weights under them are misses."""
    old, new, unknown = Adapter("files:1"), Adapter("files:2"), Adapter(None)
    tier = make(publishing=True)
    assert tier.move([0, 1], adapter=old)
    assert [event.keys for event in tier.own.take_events()] == [[KEYS[0]], [KEYS[1]]]
    assert tier.there(old) == [True] * 2 + [False] * (CHUNKS - 2)
    for other in (new, unknown, None):
        assert not any(tier.there(other)), other
        assert not tier.move([0], load=True, adapter=other), other
    assert tier.move([0], adapter=new), "its own, under the same key"
    assert not tier.move([2], adapter=unknown), "whose it is nobody could say"
    tier.own.touch(KEYS[:1], tier.context(unknown))
    again = make()
    assert again.there(new) == [True] + [False] * (CHUNKS - 1)
    np.asarray(again.view)[:] = 0
    assert again.move([0, 1], load=True, adapter=old)
    assert np.array_equal(np.asarray(again.view)[:2], np.asarray(tier.view)[:2])


def test_options_of_the_store_that_there_are_not(make: Make) -> None:
    with pytest.raises(TypeError, match="no option; there are capacity_bytes"):
        make(store={"capacity": 1})


def test_profile_that_there_is_not_is_asked_for_once(make: Make) -> None:
    tier = make(codec="klt:max", profile="nobody's")
    assert not tier.move([0])
    assert not tier.move([1])
    assert sum(tier.metrics()["failures"].values()) == 1
