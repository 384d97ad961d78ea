# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Both sides of KVCompressDeviceConnector without an engine: the scheduler's, and of each rank."""

import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from engine import repair_scan

repair_scan()

from lookups import are_there  # noqa: E402
from vllm.v1.kv_offload.base import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    CanonicalKVCacheRef,
    CanonicalKVCaches,
    CanonicalKVCacheTensor,
    GPULoadStoreSpec,
    ReqContext,
    make_offload_key,
)
from vllm.v1.kv_offload.factory import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    OffloadingSpecFactory,
)

from kvcompress.integrations import _vllm_layouts  # noqa: E402
from kvcompress.integrations._pages import PageLayout  # noqa: E402
from kvcompress.integrations._vllm_adapters import Adapter, new_request  # noqa: E402
from kvcompress.integrations._vllm_device import DeviceMetadata  # noqa: E402

LAYERS, BLOCKS, TOKENS, HEADS, WIDTH, SIZE = 2, 24, 16, 2, 16, 2  # a chunk has two blocks
PAGE_BYTES = HEADS * 2 * TOKENS * WIDTH * 2
KEYS = [make_offload_key(bytes([number]) * 32, 0) for number in range(6)]
LAYOUT = PageLayout(
    layers=("model.layers.0.attn", "model.layers.1.attn"),
    offsets=(0, SIZE * PAGE_BYTES),
    page_bytes=PAGE_BYTES,
    pages=SIZE,
    tokens=TOKENS,
    heads=HEADS,
    width=WIDTH,
    dtype="bfloat16",
    axes="hs2d",
    rank_bytes=LAYERS * SIZE * PAGE_BYTES,
)
LATENTS = replace(LAYOUT, heads=1, width=HEADS * 2 * WIDTH, axes="sd", rope_width=16)
"""Of as many bytes; all ranks have the same."""


class Sides:
    """A scheduler's side, and the side of each rank with its caches, all of one value before."""

    def __init__(
        self, folder: Path, ranks: int, *, latents: bool = False, **options: object
    ) -> None:
        """Makes them as vLLM's connector does."""
        group = asdict(LATENTS) if latents else {**asdict(LAYOUT), "ranks": ranks}
        fields = {
            "folder": str(folder),
            "groups": [group],
            "identity": {"model": "org/tiny"},
            "codec": "lossless",
            "artefact_tokens": 2 * SIZE * TOKENS,
            "timeout": 60,
            **options,
        }
        replicated = latents and ranks > 1
        specs = [self._spec(fields, rank, ranks, replicated) for rank in range(ranks)]
        # vLLM asks for it, and then has rank 0 alone store.
        assert {spec.replicated_layout for spec in specs} == {replicated}
        self.manager: Any = specs[0].get_manager()
        self.caches = [torch.full((LAYERS, BLOCKS, PAGE_BYTES), 7, dtype=torch.int8) for _ in specs]
        self.workers = [
            spec.get_worker(self._canonical(each))
            for spec, each in zip(specs, self.caches, strict=True)
        ]
        self._job = 0

    @staticmethod
    def _spec(fields: dict[str, Any], rank: int, ranks: int, replicated: object) -> Any:  # noqa: ANN401
        extra = {
            "spec_name": "DeviceSpec",
            "spec_module_path": "kvcompress.integrations._vllm_device",
            _vllm_layouts.DEVICE: fields,
        }
        config: Any = SimpleNamespace(
            extra_config=extra,
            replicated_layout=replicated,
            enable_kv_cache_events=False,
            groups=(SimpleNamespace(tokens_per_block=TOKENS),),
            cache=SimpleNamespace(tokens_per_hash=TOKENS, blocks_per_chunk=SIZE),
            parallel=SimpleNamespace(rank=rank, world_size=ranks),
        )
        return OffloadingSpecFactory.create_spec(config)

    @staticmethod
    def _canonical(cache: Any) -> CanonicalKVCaches:  # noqa: ANN401
        return CanonicalKVCaches(
            [CanonicalKVCacheTensor(each, PAGE_BYTES) for each in cache],
            [[CanonicalKVCacheRef(index, PAGE_BYTES) for index in range(len(cache))]],
        )

    def fill(self, blocks: list[int], seed: int = 0) -> list[Any]:
        """Fills blocks of all ranks, each with other values; returns these."""
        numbers = np.random.default_rng(seed)
        for cache in self.caches:
            values = numbers.normal(size=(LAYERS, len(blocks), PAGE_BYTES // 2))
            cache[:, blocks] = torch.from_numpy(values).bfloat16().view(torch.int8)
        return [cache[:, blocks].clone() for cache in self.caches]

    def context(self, adapter: Adapter | None = None, first: int = 0) -> ReqContext:
        """Returns the context of a new request, whose chunks are KEYS from one on."""
        self._job += 1
        context = ReqContext(req_id=f"request-{self._job}")
        lora = None if adapter is None else SimpleNamespace(lora_path="/adapter")
        adapters: Any = SimpleNamespace(of=lambda _: adapter and adapter.weights)
        with new_request(adapters, SimpleNamespace(lora_request=lora)):
            self.manager.on_new_request(context)
        for number, key in enumerate(KEYS[first:], 1):
            context.set_offload_key_position(key, (first + number) * SIZE * TOKENS)
        return context

    def submit(
        self,
        numbers: list[int],
        blocks: list[int],
        *,
        load: bool = False,
        index: int = 0,
        context: ReqContext | None = None,
    ) -> int:
        """Begins a transfer of chunks on all ranks."""
        self._job += 1
        context = context or self.context()
        keys = [KEYS[number] for number in numbers]
        listed = GPULoadStoreSpec(blocks, group_sizes=[len(blocks)], block_indices=[index])
        for worker in self.workers:
            if load:
                worker.submit_load(self._job, self.manager.prepare_load(keys, context), listed)
            else:
                output = self.manager.prepare_store(keys, context)
                worker.submit_store(self._job, listed, output.store_spec)
        return self._job

    def finish(self) -> set[int]:
        """Waits for the transfer; returns the blocks that some rank has not restored."""
        failed_blocks: set[int] = set()
        metas = []
        for worker in self.workers:
            while not (results := worker.get_finished()):
                time.sleep(0.01)
            [result] = results
            assert result.success, "vLLM asserts it"
            failed_blocks |= worker.take_failed_blocks()
            metas.append(DeviceMetadata({result.job_id: 1}, failed=worker.take_failed()))
        merged = metas[0]
        for meta in metas[1:]:
            merged = merged.aggregate(meta)
        assert set(merged.completed_jobs.values()) == {len(self.workers)}
        self.manager.note_failed(merged.failed)
        return failed_blocks

    def save(self, numbers: list[int], blocks: list[int], **more: Any) -> None:  # noqa: ANN401
        """Saves chunks."""
        self.submit(numbers, blocks, **more)
        assert self.finish() == set()

    def load(self, numbers: list[int], blocks: list[int], **more: Any) -> set[int]:  # noqa: ANN401
        """Restores chunks; returns the blocks that were not."""
        self.submit(numbers, blocks, load=True, **more)
        return self.finish()

    def there(self, context: ReqContext | None = None) -> list[bool]:
        """Returns which chunks are found."""
        return are_there(self.manager, KEYS, context or self.context())

    def failures(self) -> dict[tuple[str, ...], int]:
        """Returns what failed, by operation and reason, on all ranks."""
        found: dict[tuple[str, ...], int] = {}
        for worker in self.workers:
            stats = worker.stats()
            values = {} if stats is None else stats._values
            for labels, count in values.get("vllm:kv_offload_kvcompress_failures", {}).items():
                found[labels] = found.get(labels, 0) + count
        return found

    def close(self) -> None:
        """Ends all threads."""
        self.manager.shutdown()
        for worker in self.workers:
            worker.shutdown()
