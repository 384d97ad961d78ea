# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The manager and the workers of KVCompressDeviceConnector, called as vLLM does, without an engine.

test_vllm_device_engine.py has the engine, and tests/integrations/test_device_coder.py the kernels.
"""

import importlib.util
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.slow
if importlib.util.find_spec("vllm") is None:  # to import it takes long
    pytest.skip("vLLM is not installed", allow_module_level=True)

import torch  # noqa: E402
from device_sides import BLOCKS, KEYS, LATENTS, LAYOUT, SIZE, TOKENS, Sides  # noqa: E402
from processes import Daemon  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    OffloadingWorkerMetadata,
)
from vllm.v1.kv_cache_interface import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    FullAttentionSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from vllm.v1.kv_offload.base import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    LookupResult,
    ReqContext,
)

from kvcompress.integrations import _vllm_layouts  # noqa: E402
from kvcompress.integrations._vllm_adapters import Adapter  # noqa: E402
from kvcompress.integrations._vllm_device import DeviceMetadata, Parameters  # noqa: E402
from kvcompress.integrations._vllm_device_worker import Failed  # noqa: E402
from kvcompress.integrations._vllm_folders import Folders, layouts_of  # noqa: E402
from kvcompress.store import ArtefactStore  # noqa: E402

Make = Callable[..., Sides]


@pytest.fixture
def make(server: Daemon, tmp_path: Path) -> Iterator[Make]:
    """Makes engines of one folder."""
    made = []

    def make_one(ranks: int = 1, *, latents: bool = False, **options: object) -> Sides:
        options = {"server": server.target, **options}
        made.append(Sides(tmp_path / "cache", ranks, latents=latents, **options))
        return made[-1]

    yield make_one
    for each in made:
        each.close()


def artefacts(folder: Path) -> list[Path]:
    """Returns all artefacts."""
    return sorted(folder.glob("cache/*/artefacts/*/*.safetensors"))


def test_another_engine_restores_into_other_blocks(make: Make, tmp_path: Path) -> None:
    """Three chunks in two artefacts, of which the first block of the second chunk is not needed."""
    first = make()
    [saved] = first.fill([3, 1, 4, 15, 9, 2])
    assert not any(first.there())
    first.save([0, 1, 2], [3, 1, 4, 15, 9, 2])
    assert len(artefacts(tmp_path)) == 2
    other = make()
    assert other.there() == [True] * 3 + [False] * 3
    assert other.load([1, 2], [20, 21, 22], index=3) == set()
    [cache] = other.caches
    assert torch.equal(cache[:, [20, 21, 22]], saved[:, 3:])
    untouched = [block for block in range(BLOCKS) if block not in (20, 21, 22)]
    assert (cache[:, untouched] == 7).all()
    assert other.failures() == first.failures() == {}


def test_what_is_there_is_not_saved_again(make: Make, tmp_path: Path) -> None:
    engine = make(artefact_tokens=SIZE * TOKENS)
    engine.fill([0, 1, 2, 3])
    engine.save([0], [0, 1])
    before = artefacts(tmp_path)[0].stat().st_mtime_ns
    engine.save([0, 1], [0, 1, 2, 3])
    assert len(artefacts(tmp_path)) == 2
    assert before in {path.stat().st_mtime_ns for path in artefacts(tmp_path)}


def test_each_rank_has_artefacts_of_its_own(make: Make, tmp_path: Path) -> None:
    """A chunk is there where all ranks have it; what one does not restore, none has."""
    engine = make(ranks=2)
    saved = engine.fill([0, 1, 2, 3])
    engine.save([0, 1], [0, 1, 2, 3])
    other = make(ranks=2)
    assert other.load([0, 1], [8, 9, 10, 11]) == set()
    for cache, values in zip(other.caches, saved, strict=True):
        assert torch.equal(cache[:, 8:12], values)
    assert not torch.equal(*saved)
    [_, second] = artefacts(tmp_path)
    second.write_bytes(second.read_bytes()[:-1] + b"!")
    assert other.load([0, 1], [8, 9, 10, 11]) == {8, 9, 10, 11}
    assert other.there() == [False] * 6
    assert not second.exists()
    assert make(ranks=1).there() == [False] * 6, "another number of ranks"


def test_latents_are_for_all_ranks(make: Make, tmp_path: Path) -> None:
    """Which have the same ones: what one has stored, another number of them restores."""
    engine = make(latents=True)
    [saved] = engine.fill([0, 1, 2, 3])
    engine.save([0, 1], [0, 1, 2, 3])
    [artefact] = artefacts(tmp_path)
    other = make(ranks=2, latents=True)
    assert other.there() == [True] * 2 + [False] * 4
    assert other.load([0, 1], [9, 10, 11], index=1) == set()
    for cache in other.caches:
        assert torch.equal(cache[:, 9:12], saved[:, 1:])
    assert not any(make().there()), "keys and values are others"
    artefact.write_bytes(artefact.read_bytes()[:-1] + b"!")
    assert other.load([1], [8, 9]) == {8, 9}
    assert not any(other.there())


def test_what_is_damaged_is_reported_and_forgotten(make: Make, tmp_path: Path) -> None:
    """By block, and to the request by key; once it is saved again it is found again."""
    engine = make(artefact_tokens=SIZE * TOKENS)
    engine.fill(list(range(6)))
    engine.save([0, 1, 2], list(range(6)))
    context = engine.context()
    assert engine.there(context) == [True] * 3 + [False] * 3
    for path in artefacts(tmp_path):
        if b'"first_token":"32"' in path.read_bytes():
            path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert engine.load([0, 1, 2], list(range(10, 16)), context=context) == {12, 13}
    [cache] = engine.caches
    assert torch.equal(cache[:, [10, 11, 14, 15]], cache[:, [0, 1, 4, 5]])
    assert engine.failures() == {("load", "damaged"): 1}
    assert engine.there() == [True, False, True] + [False] * 3
    engine.save([1], [2, 3], context=engine.context(first=0))
    assert engine.there() == [True] * 3 + [False] * 3


def test_a_chunk_that_was_evicted_meanwhile(make: Make, tmp_path: Path) -> None:
    """It is computed, which is no failure; the request that asks again is told that it is not."""
    engine = make()
    engine.fill([0, 1])
    engine.save([0], [0, 1])
    context = engine.context()
    while engine.manager.lookup(KEYS[0], context) != LookupResult.HIT:
        engine.manager.on_schedule_end(None)
    [path] = artefacts(tmp_path)
    path.unlink()
    assert engine.load([0], [4, 5], context=context) == {4, 5}
    assert engine.manager.lookup(KEYS[0], context) == LookupResult.MISS
    assert engine.failures() == {}


def test_a_service_that_is_away(make: Make, tmp_path: Path) -> None:
    """Nothing is restored; for a minute nobody asks for the same chunk again."""
    make().save([0], [0, 1])
    away = make(server=f"unix:{tmp_path}/none", timeout=0.2)
    assert away.there()[0]
    assert away.load([0], [4, 5]) == {4, 5}
    assert away.failures() == {("load", "unavailable"): 1}
    assert not away.there()[0]
    assert make().there()[0]


def test_an_error_that_nobody_expects(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as of a driver: the blocks are computed, and the worker goes on."""
    engine = make()
    engine.fill([0, 1])
    engine.save([0], [0, 1])
    [worker] = engine.workers

    def fail(*_: object) -> None:
        raise RuntimeError("the device is lost")

    with monkeypatch.context() as patch:
        patch.setattr(worker._coder, "restore", fail)
        assert engine.load([0], [4, 5]) == {4, 5}
    assert engine.load([0], [4, 5]) == set()


def test_a_store_that_is_full(make: Make) -> None:
    engine = make(store={"capacity_bytes": 4096})
    engine.fill([0, 1])
    engine.save([0], [0, 1])
    assert engine.failures() == {("save", "disk"): 1}
    assert not any(engine.there())


def test_blocks_that_are_needed_are_not_read(make: Make, tmp_path: Path) -> None:
    """After `wait`, as of a preempted request, what was not read before is never saved."""
    engine = make(threads=1)
    [worker], busy = engine.workers, threading.Event()
    worker._savers.submit(busy.wait)
    engine.fill([0, 1])
    number = engine.submit([0], [0, 1])
    worker.wait({number})
    engine.fill([0, 1], seed=1)
    busy.set()
    assert engine.finish() == set()
    assert artefacts(tmp_path) == []
    assert engine.failures() == {}


def test_blocks_that_are_needed_are_not_written(make: Make) -> None:
    """The same of chunks to restore: they are reported."""
    engine = make(threads=1)
    [worker], busy = engine.workers, threading.Event()
    engine.fill([0, 1])
    engine.save([0], [0, 1])
    worker._loaders.submit(busy.wait)
    number = engine.submit([0], [4, 5], load=True)
    worker.wait({number})
    busy.set()
    assert engine.finish() == {4, 5}
    assert (engine.caches[0][:, [4, 5]] == 7).all()


def test_adapters_have_folders_of_their_own(make: Make) -> None:
    """Chunks of other weights under the same key are misses, and of unknown ones not kept."""
    engine = make()
    old, new, unknown = Adapter("files:1"), Adapter("files:2"), Adapter(None)
    engine.fill([0, 1])
    engine.save([0], [0, 1], context=engine.context(old))
    assert engine.there(engine.context(old))[0]
    for other in (new, unknown, None):
        assert not engine.there(engine.context(other))[0], other
        failed = engine.load([0], [4, 5], context=engine.context(other))
        assert failed == {4, 5}, other
    output = engine.manager.prepare_store(KEYS[:1], engine.context(unknown))
    assert output.keys_to_store == []


def test_blocks_that_are_not_those_of_chunks(make: Make) -> None:
    with pytest.raises(ValueError, match="3 blocks from 0 on, of 1 chunks"):
        make().submit([0], [0, 1, 2])


def test_the_scheduler_is_told_of_all_ranks() -> None:
    """Whichever comes first, and of ranks that have nothing to say."""
    one = DeviceMetadata({1: 1}, failed=Failed({KEYS[0]}))
    other = DeviceMetadata({1: 1, 2: 1}, failed=Failed({KEYS[1]}, {KEYS[1]}))
    for merged in (one.aggregate(other), other.aggregate(one)):
        assert merged.failed == Failed({KEYS[0], KEYS[1]}, {KEYS[1]})
        assert merged.completed_jobs == {1: 2, 2: 1}
    assert isinstance(one, OffloadingWorkerMetadata)


def test_the_file_of_a_profile(tmp_path: Path) -> None:
    """By the name that the server has it under; a digest or another server's name is none."""
    given: dict[str, Any] = {"folder": "/cache", "groups": [], "identity": {}}
    (tmp_path / "model.profile").touch()
    folder = str(tmp_path)
    found = Parameters(**given, profile="model", profile_directory=folder).profile_file
    assert found == tmp_path / "model.profile"
    assert Parameters(**given, profile="other", profile_directory=folder).profile_file is None
    assert Parameters(**given, profile="model").profile_file is None
    assert Parameters(**given, profile_directory=folder).profile_file is None


@pytest.mark.parametrize(
    ("kinds", "axes", "dtype"),
    [
        ([SlidingWindowSpec], "hs2d", "bfloat16"),
        ([FullAttentionSpec, SlidingWindowSpec], "hs2d", "bfloat16"),
        ([MLAAttentionSpec], "", "uint8"),
        ([MLAAttentionSpec, MLAAttentionSpec], "sd", "bfloat16"),
        ([FullAttentionSpec], "", "uint8"),
        ([FullAttentionSpec], "hs2d", "float8_e4m3fn"),
        ([FullAttentionSpec], "hs2d", "bfloat16"),
        ([MLAAttentionSpec], "sd", "bfloat16"),
    ],
)
def test_caches_that_only_the_tier_keeps(
    monkeypatch: pytest.MonkeyPatch, kinds: list[Any], axes: str, dtype: str
) -> None:
    """They are refused when the engine starts, with the connector to take; the last two are not."""
    kept = {"hs2d": LAYOUT, "sd": LATENTS}.get(axes, LAYOUT)
    layout = {"layouts": lambda *_: [replace(kept, axes=axes, dtype=dtype)]}
    for name, function in {**layout, "identity": lambda _: {"model": "org/tiny"}}.items():
        monkeypatch.setattr(_vllm_layouts, name, function)
    groups = [SimpleNamespace(kv_cache_spec=kind.__new__(kind)) for kind in kinds]
    extra: dict[str, Any] = {"folder": "/cache"}
    transfer = SimpleNamespace(kv_connector_extra_config=extra, kv_connector="name")
    engine = SimpleNamespace(kv_transfer_config=transfer)
    cache = SimpleNamespace(kv_cache_groups=groups)
    if (len(kinds), dtype) == (1, "bfloat16") and kinds != [SlidingWindowSpec]:
        _vllm_layouts.complete_device(engine, cache)
        assert extra["block_size"] == 256
        assert transfer.kv_load_failure_policy == "recompute"
        assert Parameters(**extra[_vllm_layouts.DEVICE]).layout == kept
        return
    with pytest.raises(ValueError, match="take KVCompressConnector"):
        _vllm_layouts.complete_device(engine, cache)


def test_the_tier_has_the_same_folder(tmp_path: Path) -> None:
    """Of one rank, with chunks of as many blocks, however the pages lie in memory."""
    store, context = ArtefactStore(str(tmp_path)), ReqContext(req_id="request")
    identity = {"model": "org/tiny"}

    def folder(folders: Folders) -> str:
        found = folders.of(context)
        assert found is not None
        return found[0].runs.path

    for layout in (LATENTS, LAYOUT):
        axes = layout.axes.replace("hs2d", "h2sd")
        tier = layouts_of([asdict(replace(layout, axes=axes))], layout.rank_bytes)
        device = Parameters(str(tmp_path), [asdict(layout)], identity)
        expected = folder(Folders(store, identity, tier, 512))
        assert folder(device.folders(store, 0, 1)) == expected
    ranks = {folder(device.folders(store, rank, 2)) for rank in range(2)}
    assert len(ranks | {expected}) == 3
