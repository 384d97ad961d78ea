# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""SGLang's own host pools with random states, and backends made by its factory."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sglang_package
import torch  # type: ignore[import-not-found,unused-ignore]

STORAGE = sglang_package.module("mem_cache.hicache_storage")
CONTROLLER = sglang_package.module("managers.cache_controller")
LAYERS, HEADS, HEAD_DIM, LATENT, ROPE, PAGE, PAGES = 3, 2, 16, 32, 8, 16, 6
MHA = ("layer_first", "page_first", "page_first_direct", "page_head")
MLA = ("layer_first", "page_first", "page_first_direct")
KINDS = [("mha", layout) for layout in MHA] + [("mla", layout) for layout in MLA]
KEYS = [hashlib.sha256(bytes([number])).hexdigest() for number in range(PAGES)]
Make = Callable[..., Any]


def pool_of(
    kind: str,
    layout: str,
    *,
    packed: bool = False,
    filled: bool = True,
    dtype: Any = torch.bfloat16,  # noqa: ANN401
    heads: range = range(HEADS),
    groups: int = 1,
) -> Any:  # noqa: ANN401
    """SGLang's own host pool, with random states of tokens that do not depend on the layout.

    It has some of the heads of a model with four, in groups for the layout page_unified.
    """
    info = sglang_package.module("mem_cache.device_pool_info")
    base = sglang_package.module("mem_cache.pool_host.base")
    cpu, size = torch.device("cpu"), PAGE * PAGES
    device = torch.zeros(LAYERS, size, len(heads) if kind == "mha" else 1, HEAD_DIM, dtype=dtype)
    addresses = torch.zeros(LAYERS, dtype=torch.uint64)
    common = {"page_size": PAGE, "dtype": dtype, "device": cpu}
    options = _options(layout)
    with base.host_memory_budget_scope(1 << 30):
        if kind == "mha":
            buffers = info.KVBuffers(
                k=tuple(device),
                v=tuple(device),
                k_data_ptrs=addresses,
                v_data_ptrs=addresses,
                layout=info.KVBufferLayout.NHD,
            )
            sizes = {"head_num": len(heads), "head_dim": HEAD_DIM, "v_head_dim": HEAD_DIM}
            described = info.MHABufferInfo(buffers=buffers, **sizes, **common)
            pool = sglang_package.module("mem_cache.pool_host.mha").MHATokenToKVPoolHost(
                described, head_group_num=groups, **options
            )
            states = random_states(2, LAYERS, PAGES, PAGE, 2 * HEADS, HEAD_DIM)[..., heads, :]
        else:
            latents = torch.zeros(LAYERS, size, 1, LATENT + ROPE, dtype=dtype)
            described = info.MLABufferInfo(
                buffers=tuple(latents),
                data_ptrs=addresses,
                layer_indices=tuple(range(LAYERS)),
                device_layer_num=LAYERS,
                kv_lora_rank=LATENT,
                qk_rope_head_dim=ROPE,
                kv_cache_dim=LATENT + ROPE,
                packed_fp8=packed,
                **common,
            )
            pool = sglang_package.module("mem_cache.pool_host.mla").MLATokenToKVPoolHost(
                described, target_layer_num=LAYERS, **options
            )
            states = random_states(LAYERS, PAGES, PAGE, 1, LATENT + ROPE)
    if layout == "page_unified":
        states = unified(kind, states, groups)
    else:
        states = in_layout(kind, layout, states)
    pool.kv_buffer.copy_(states if filled else torch.zeros(()))
    return pool


def _options(layout: str) -> dict[str, Any]:
    """What a host pool takes other than what it is a copy of."""
    return {
        "host_to_device_ratio": 1.0,
        "host_size": 0,
        "page_size": PAGE,
        "layout": layout,
        "pin_memory": False,
        "device_capacity_tokens": PAGE * PAGES - 1,
        "host_token_capacity": PAGE * PAGES,
        "start_layer": 0,
        "end_layer": LAYERS,
    }


def random_states(*shape: int) -> Any:  # noqa: ANN401
    """Random states."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator).to(torch.bfloat16)


def in_layout(kind: str, layout: str, states: Any) -> Any:  # noqa: ANN401
    """States [2, layers, pages, page, heads, head_dim] as a buffer; for latents without the 2."""
    order = {
        "layer_first": "lpshd",
        "page_first": "pslhd",
        "page_first_direct": "plshd",
        "page_head": "phsld",
    }[layout]
    before = 1 if kind == "mha" else 0
    axes = [*range(before), *("lpshd".index(axis) + before for axis in order)]
    ordered = states.permute(axes)
    if layout == "layer_first":
        return ordered.flatten(before + 1, before + 2)
    return ordered.flatten(before, before + 1) if layout == "page_first" else ordered


def unified(kind: str, states: Any, groups: int) -> Any:  # noqa: ANN401
    """The same for the layout page_unified, which has heads in groups outside of the layers."""
    if kind == "mla":
        return states.squeeze(3).transpose(0, 1)
    apart = states.unflatten(4, (groups, -1))  # 2, layers, pages, page, groups, heads, head_dim
    return apart.permute(2, 4, 1, 0, 3, 5, 6)


@pytest.fixture
def make(
    server: Any,  # noqa: ANN401
    bin_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Make]:
    """Makes backends as SGLang does, on one folder and one service, and closes them."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir.resolve()))
    factory = sglang_package.module("mem_cache.storage.backend_factory").StorageBackendFactory
    made = []

    def make_one(
        pool: Any,  # noqa: ANN401
        rank: int = 0,
        model: str = "org/model",
        size: int = 2,
        lcm: int | None = None,
        **extra: object,
    ) -> Any:  # noqa: ANN401
        config = STORAGE.HiCacheStorageConfig(
            tp_rank=rank,
            tp_size=size,
            tp_lcm_size=lcm,
            pp_rank=0,
            pp_size=1,
            attn_cp_rank=0,
            attn_cp_size=1,
            is_mla_model=hasattr(pool, "kv_lora_rank"),
            enable_storage_metrics=False,
            is_page_first_layout=pool.layout == "page_first",
            model_name=model,
            extra_config={
                "backend_name": "kvcompress",
                "module_path": "kvcompress.integrations.sglang",
                "class_name": "KVCompressStorage",
                "folder": str(tmp_path / "cache"),
                "server": server.target,
                "codec": "lossless",
                "timeout": 60,
                **extra,
            },
        )
        made.append(factory.create_backend("dynamic", config, pool))
        made[-1].register_mem_pool_host(pool)
        return made[-1]

    yield make_one
    for each in made:
        each.close()


class Controller:
    """SGLang's controller with nothing but what saves to a backend and loads from one."""

    def __init__(self, backend: Any, pool: Any, *, places: bool) -> None:  # noqa: ANN401
        """Takes a backend and a pool; `places` is for `interface_v1`."""
        own = CONTROLLER.HiCacheController
        self.controller = object.__new__(own)
        self.controller.storage_backend = backend
        self.controller.storage_host_pool = self.controller.mem_pool_host = pool
        self.controller.page_size = PAGE
        bound = self.controller
        bound.page_get_func = bound._page_get_zero_copy if places else bound._generic_page_get
        bound.page_set_func = bound._page_set_zero_copy if places else bound._generic_page_set

    def backup(self, keys: list[str]) -> int:
        """Saves the first pages of the pool; returns the tokens that SGLang hears of."""
        places = torch.arange(len(keys) * PAGE)
        operation = CONTROLLER.StorageOperation(places, [], hash_value=keys)
        self.controller._page_backup(operation)
        return int(operation.completed_tokens)

    def prefetch(self, keys: list[str]) -> int:
        """Loads pages to the beginning of the pool; returns how many."""
        operation = CONTROLLER.PrefetchOperation("request", [])
        extra = STORAGE.HiCacheStorageExtraInfo()
        places = torch.arange(len(keys) * PAGE)
        return int(self.controller._page_transfer_kv_batch(operation, keys, places, extra, []))


def page(pool: Any, index: int) -> Any:  # noqa: ANN401
    """A page of a pool, as bits."""
    if pool.layout == "page_unified":
        return pool.kv_buffer[index].flatten().view(torch.int16)
    return pool.get_data_page(index * PAGE).view(torch.int16)


def artefacts(tmp_path: Path) -> list[Path]:
    """All artefacts."""
    return sorted((tmp_path / "cache").glob("*/artefacts/*/*.safetensors"))
