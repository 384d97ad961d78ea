# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Artefacts of SGLang's pages by groups of heads: engines with other ranks, and page_unified."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sglang_package

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")
if not sglang_package.prepare():
    pytest.skip("sglang is not installed", allow_module_level=True)

from sglang_pools import (  # noqa: E402
    KEYS,
    MHA,
    PAGE,
    PAGES,
    STORAGE,
    Make,
    artefacts,
    make,
    page,
    pool_of,
)

from kvcompress.integrations.sglang import KVCompressStorage  # noqa: E402

__all__ = ["make"]
ALL = 4  # heads of the model
PLACES = torch.arange(PAGES * PAGE)


def pool_of_rank(rank: int, size: int, layout: str, *, filled: bool = True) -> Any:  # noqa: ANN401
    """The pool of a rank, which has its share of the heads."""
    share = ALL // size
    return pool_of("mha", layout, filled=filled, heads=range(rank * share, (rank + 1) * share))


@pytest.mark.parametrize(("first", "second"), [(2, 4), (4, 2), (1, 4), (4, 1), (2, 1)])
def test_engine_with_other_ranks_hits(make: Make, first: int, second: int) -> None:
    """Bit for bit, in other layouts too, as soon as all ranks of the first engine have saved."""
    layouts = dict(zip((1, 2, 4), ("page_head", "page_first", "layer_first"), strict=True))
    for rank in range(first):
        if second <= first:
            last = pool_of_rank(second - 1, second, MHA[0])
            assert not make(last, second - 1, size=second, lcm=4).exists(KEYS[0])
        source = pool_of_rank(rank, first, layouts[first])
        backend = make(source, rank, size=first, lcm=4)
        assert backend.batch_set_v1(KEYS, PLACES) == [True] * PAGES
    for rank in range(second):
        target = pool_of_rank(rank, second, layouts[second], filled=False)
        backend = make(target, rank, size=second, lcm=4)
        assert backend.batch_exists(KEYS) == PAGES
        assert all(backend.batch_get_v1(KEYS, PLACES))
        source = pool_of_rank(rank, second, layouts[second])
        assert torch.equal(target.kv_buffer, source.kv_buffer)


def test_what_one_group_of_heads_lacks_is_a_miss(make: Make, tmp_path: Path) -> None:
    """And nothing of it gets into the pool; it is saved anew, and is counted as one page."""
    source, target = (pool_of_rank(0, 2, "page_first", filled=filled) for filled in (True, False))
    backend = make(source, size=2, lcm=4, artefact_tokens=PAGE)
    assert all(backend.batch_set_v1(KEYS[:2], PLACES[: 2 * PAGE]))
    assert len(artefacts(tmp_path)) == 4
    artefacts(tmp_path)[0].unlink()
    later = make(target, size=2, lcm=4, artefact_tokens=PAGE)
    got = later.batch_get_v1(KEYS[:2], PLACES[: 2 * PAGE])
    assert sorted(got) == [False, True]
    lost = got.index(False)
    assert not page(target, lost).any()
    assert torch.equal(page(target, 1 - lost), page(source, 1 - lost))
    assert backend.batch_set_v1(KEYS[:2], PLACES[: 2 * PAGE]) == [True] * 2
    assert later.batch_exists(KEYS[:2]) == 2
    assert later.clear()
    assert not artefacts(tmp_path)


def test_without_it_ranks_are_those_of_before(make: Make) -> None:
    """And what cannot be cut is refused, with the remedy."""
    assert all(make(pool_of_rank(1, 2, "page_first"), 1).batch_set_v1(KEYS, PLACES))
    assert make(pool_of_rank(1, 2, "page_first"), 1, lcm=2).batch_exists(KEYS) == PAGES
    assert make(pool_of_rank(1, 2, "page_first"), 1, lcm=4).batch_exists(KEYS) == 0
    latents = pool_of("mla", "page_first")
    assert all(make(latents).batch_set_v1(KEYS, PLACES))
    assert make(latents, 3, size=4, lcm=8).batch_exists(KEYS) == PAGES
    for size, lcm, message in (
        (2, 3, "a multiple of the engine's 2"),
        (2, 8, "at most the number"),
    ):
        with pytest.raises(ValueError, match=message):
            make(pool_of_rank(0, size, "page_first"), size=size, lcm=lcm)


def test_tokens_of_other_ranks_are_apart() -> None:
    """Latents are for all ranks, unless decode context parallelism assigns each some tokens."""
    fields = {"pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0, "attn_cp_size": 1, "tp_size": 2}
    common = {**fields, "enable_storage_metrics": False, "is_page_first_layout": True}
    shards: Any = KVCompressStorage._shards
    found = [
        shards(
            SimpleNamespace(
                _config=STORAGE.HiCacheStorageConfig(
                    **common, tp_rank=rank, is_mla_model=True, model_name="org/model", **more
                )
            )
        )
        for rank, more in (
            (0, {}),
            (0, {"dcp_size": 2, "dcp_rank": 0, "logical_page_size": 128}),
            (1, {"dcp_size": 2, "dcp_rank": 1, "logical_page_size": 128}),
        )
    ]
    assert len({tuple(sorted(each.items())) for each in found}) == len(found)


@pytest.mark.parametrize(("kind", "groups"), [("mha", 1), ("mha", 2), ("mla", 1)])
def test_page_unified(make: Make, kind: str, groups: int) -> None:
    """The same artefacts as those of other layouts, also by other ranks."""
    source = pool_of(kind, "page_unified", groups=groups)
    assert all(make(source).batch_set_v1(KEYS, PLACES))
    for layout in ("page_first", "page_unified"):
        target = pool_of(kind, layout, filled=False, groups=groups)
        assert all(make(target).batch_get_v1(KEYS, PLACES))
        assert torch.equal(target.kv_buffer, pool_of(kind, layout, groups=groups).kv_buffer)
    if kind == "mha":
        assert all(make(source, lcm=4).batch_set_v1(KEYS, PLACES))
        for rank in range(2):
            target = pool_of_rank(rank, 4, "page_first", filled=False)
            assert all(make(target, rank, size=4, lcm=4).batch_get_v1(KEYS, PLACES))
            assert torch.equal(target.kv_buffer, pool_of_rank(rank, 4, "page_first").kv_buffer)
