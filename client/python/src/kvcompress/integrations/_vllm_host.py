# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""vLLM's tiers where the engine itself runs on CPUs.

vLLM's own worker copies between a GPU and host memory with streams. Here both sides are host
memory, so that a transfer is a copy that has ended when it is submitted.
"""

from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]
from vllm.v1.kv_offload.base import (  # type: ignore[import-not-found,unused-ignore]
    OffloadingWorker,
    TransferResult,
)
from vllm.v1.kv_offload.cpu.shared_offload_region import (  # type: ignore[import-not-found,unused-ignore]
    SharedOffloadRegion,
)
from vllm.v1.kv_offload.tiering.spec import (  # type: ignore[import-not-found,unused-ignore]
    TieringOffloadingSpec,
)


class HostWorker(OffloadingWorker):  # type: ignore[misc,unused-ignore]
    """Copies blocks between the engine's cache and the chunks of the primary tier."""

    def __init__(
        self,
        kv_caches: Any,  # noqa: ANN401
        blocks_per_chunk: int,
        region: SharedOffloadRegion,
    ) -> None:
        """Takes the caches, and the region with a place for each of their tensors."""
        self._region = region
        self._count = blocks_per_chunk
        self._groups = kv_caches.group_data_refs
        self._pairs = []
        for each in kv_caches.tensors:
            pages = each.tensor.view(torch.int8).view(-1, each.page_size_bytes)
            chunks = region.create_next_worker_view(each.page_size_bytes * blocks_per_chunk)
            cells = chunks.unflatten(1, (blocks_per_chunk, -1))
            self._pairs.append((pages.numpy(), cells.numpy()))
        self._finished: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:  # noqa: ANN401
        """Copies blocks into chunks."""
        return self._copy(job_id, src_spec, dst_spec.chunk_ids, store=True)

    def submit_load(
        self,
        job_id: int,
        src_spec: Any,  # noqa: ANN401
        dst_spec: Any,  # noqa: ANN401
        expedited: bool = False,
    ) -> bool:
        """Copies chunks into blocks, at once; `expedited` is given since vLLM 0.33."""
        return self._copy(job_id, dst_spec, src_spec.chunk_ids, store=False)

    def get_finished(self) -> list[TransferResult]:
        """Returns what has ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids: set[int]) -> None:
        """Waits for nothing."""

    def shutdown(self) -> None:
        """Releases the region."""
        self._pairs.clear()
        self._region.cleanup()

    def _copy(self, job_id: int, engine: Any, chunk_ids: Any, *, store: bool) -> bool:  # noqa: ANN401
        """Copies the blocks that `engine` lists, group by group."""
        size, first_block, first_chunk = 0, 0, 0
        for blocks, index, refs in zip(
            engine.group_sizes, engine.block_indices, self._groups, strict=True
        ):
            if blocks == 0:
                continue
            skipped = index % self._count
            chunks = -(-(skipped + blocks) // self._count)
            mine = np.asarray(chunk_ids[first_chunk : first_chunk + chunks], np.int64)
            places = (mine[:, None] * self._count + np.arange(self._count)).ravel()
            places = places[skipped : skipped + blocks]
            rows, columns = (each.tolist() for each in divmod(places, self._count))
            listed = [int(block) for block in engine.block_ids[first_block : first_block + blocks]]
            for ref in refs:
                pages, cells = self._pairs[ref.tensor_idx]
                # One by one: an index of all has a copy made first.
                for block, row, column in zip(listed, rows, columns, strict=True):
                    if store:
                        cells[row, column] = pages[block]
                    else:
                        pages[block] = cells[row, column]
                size += blocks * pages.shape[1]
            first_block, first_chunk = first_block + blocks, first_chunk + chunks
        self._finished.append(TransferResult(job_id, True, size, 0.0))
        return True


class HostTieringSpec(TieringOffloadingSpec):  # type: ignore[misc,unused-ignore]
    """vLLM's tiers with a HostWorker."""

    _worker: HostWorker | None

    def get_worker(self, kv_caches: Any) -> HostWorker:  # noqa: ANN401
        """Returns the worker."""
        worker: HostWorker | None = self._worker
        if worker is None:
            region = SharedOffloadRegion(
                engine_id=self._engine_id,
                num_chunks=self.num_chunks,
                rank=0 if self.replicated_layout else self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )
            worker = HostWorker(kv_caches, self.blocks_per_chunk, region)
            self._worker = worker
        return worker
