# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The worker of a rank: restores artefacts into the engine's own blocks, and saves these blocks.

vLLM asserts that a transfer succeeds. What was not restored is told apart from it, by block: vLLM
computes the first of these blocks and all behind it.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from vllm.v1.kv_offload.base import (  # type: ignore[import-not-found,unused-ignore]
    LoadStoreSpec,
    OffloadingWorker,
    TransferResult,
)

from kvcompress.integrations._artefact_folder import ArtefactFolder, Found
from kvcompress.integrations._device_coder import DeviceCoder
from kvcompress.integrations._device_pages import NOWHERE, DevicePages
from kvcompress.integrations._service import Service
from kvcompress.integrations._vllm_adapters import Adapter
from kvcompress.integrations._vllm_attempts import Attempts
from kvcompress.integrations._vllm_chunks import Chunk, block_of, parts_of
from kvcompress.integrations._vllm_folders import Folders
from kvcompress.integrations._vllm_metrics import Metrics
from kvcompress.store import ArtefactStore

_LOG = logging.getLogger(__name__)


@dataclass
class Chunks(LoadStoreSpec):  # type: ignore[misc,unused-ignore]
    """Chunks of a transfer, in the order of their tokens.

    Attributes:
        keys: Of vLLM.
        ends: Tokens of the prompt up to the end of each; None where vLLM does not report it.
        adapter: Of the request.
    """

    keys: tuple[bytes, ...]
    ends: tuple[int | None, ...]
    adapter: Adapter | None


@dataclass
class Failed:
    """Chunks that were not restored.

    Attributes:
        keys: Of all.
        kept: Of those whose artefacts stay, as where the service does not answer.
    """

    keys: set[bytes] = field(default_factory=set)
    kept: set[bytes] = field(default_factory=set)


class Job:
    """A transfer.

    Attributes:
        number: Of vLLM.
        chunks: What it moves.
        blocks: Of the engine.
        pages: The same by chunk; NOWHERE for those that the request has already.
        using: Held while blocks are read or written.
        dropped: Whether its blocks must not be used any more.
        failed: Which chunks were not restored.
        kept: Which of them have an artefact that stays.
    """

    def __init__(self, number: int, chunks: Chunks, blocks: Any, size: int) -> None:  # noqa: ANN401
        """Sorts the blocks that vLLM lists, of chunks of `size` blocks.

        Raises:
            ValueError: They are not those of the chunks, without some at the beginning.
        """
        [index], listed = blocks.block_indices, [int(block) for block in blocks.block_ids]
        padded = [NOWHERE] * (index % size) + listed
        if len(padded) != size * len(chunks.keys):
            raise ValueError(f"{len(listed)} blocks from {index} on, of {len(chunks.keys)} chunks")
        self.number, self.chunks, self.blocks = number, chunks, listed
        self.pages = [padded[i : i + size] for i in range(0, len(padded), size)]
        self.using, self.dropped, self.began = threading.Lock(), False, time.monotonic()
        self.failed: set[int] = set()
        self.kept: set[int] = set()


class DeviceWorker(OffloadingWorker):  # type: ignore[misc,unused-ignore]
    """Moves chunks on threads of its own, after what the engine's stream has when it is asked."""

    def __init__(
        self,
        pages: DevicePages,
        coder: DeviceCoder,
        service: Service,
        store: ArtefactStore,
        folders: Folders,
        threads: int,
        timeouts: tuple[float | None, float | None],
    ) -> None:
        """Starts the threads, so many that restore and as many that save."""
        self._pages, self._coder, self._service = pages, coder, service
        self._store, self._folders, self._timeouts = store, folders, timeouts
        self._metrics = Metrics(store)
        self._attempts = Attempts(service, self._metrics)
        self._loaders = ThreadPoolExecutor(threads, "kvcompress-load")
        self._savers = ThreadPoolExecutor(threads, "kvcompress-save")
        self._jobs: dict[int, Job] = {}
        self._ended: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._failed_blocks: set[int] = set()
        self._failed = Failed()
        # One for all: the allocator keeps memory for each stream.
        on_gpu = pages.device.type == "cuda"
        self._own_stream: Any = torch.cuda.Stream(pages.device) if on_gpu else None

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:  # noqa: ANN401
        """Begins to save chunks."""
        job = Job(job_id, dst_spec, src_spec, self._pages.layout.pages)
        return self._submit(self._savers, self._save, job)

    def submit_load(
        self,
        job_id: int,
        src_spec: Any,  # noqa: ANN401
        dst_spec: Any,  # noqa: ANN401
        expedited: bool = False,
    ) -> bool:
        """Begins to restore chunks; `expedited` is given since vLLM 0.33."""
        job = Job(job_id, src_spec, dst_spec, self._pages.layout.pages)
        job.failed.update(range(len(job.pages)))  # until they are restored
        return self._submit(self._loaders, self._load, job)

    def get_finished(self) -> list[TransferResult]:
        """Returns what has ended since the last call."""
        results = []
        while not self._ended.empty():
            job = self._ended.get()
            del self._jobs[job.number]
            self._failed.keys.update(job.chunks.keys[number] for number in job.failed)
            self._failed.kept.update(job.chunks.keys[number] for number in job.kept)
            for number in job.failed:
                self._failed_blocks.update(set(job.pages[number]) - {NOWHERE})
            size = len(job.blocks) * self._pages.layout.page_bytes * len(self._pages.layout.layers)
            results.append(TransferResult(job.number, True, size, time.monotonic() - job.began))
        return results

    def take_failed_blocks(self) -> set[int]:
        """Returns the engine's blocks that were not restored, of jobs that have ended, once."""
        failed, self._failed_blocks = self._failed_blocks, set()
        return failed

    def take_failed(self) -> Failed:
        """Returns the chunks of these jobs that were not restored, once."""
        failed, self._failed = self._failed, Failed()
        return failed

    def stats(self) -> Any:  # noqa: ANN401
        """Returns the counters' increase since the last call."""
        return self._metrics.take()

    def wait(self, job_ids: set[int]) -> None:
        """Waits until the blocks of jobs are not used any more; what is not saved then is not."""
        for job in [self._jobs[number] for number in job_ids if number in self._jobs]:
            job.dropped = True
            with job.using:
                pass

    def shutdown(self) -> None:
        """Ends the threads, and the service if it is the engine's own."""
        self.wait(set(self._jobs))
        for pool in (self._savers, self._loaders):
            pool.shutdown(wait=True, cancel_futures=True)
        self._service.close()
        self._store.close()

    def _submit(
        self,
        pool: ThreadPoolExecutor,
        run: Callable[[Job, ArtefactFolder], None],
        job: Job,
    ) -> bool:
        """Runs a job on a thread."""
        self._jobs[job.number] = job
        behind = None
        if self._own_stream is not None:
            behind = torch.cuda.current_stream(self._pages.device).record_event()

        def task() -> None:
            try:
                folders = self._folders.of_adapter(job.chunks.adapter)
                with self._stream(behind), torch.inference_mode():
                    if folders is not None:
                        run(job, folders[0])
            except Exception:
                _LOG.exception("job %d ended unfinished", job.number)
            finally:
                self._ended.put(job)

        pool.submit(task)
        return True

    @contextmanager
    def _stream(self, behind: Any) -> Iterator[None]:  # noqa: ANN401
        """Makes the worker's stream the current one, behind an event; waits for it in the end."""
        if behind is None:
            yield
            return
        self._own_stream.wait_event(behind)
        try:
            with torch.cuda.device(self._pages.device), torch.cuda.stream(self._own_stream):
                yield
        finally:
            self._own_stream.synchronize()

    def _save(self, job: Job, folder: ArtefactFolder) -> None:
        """Saves the chunks of a job that are not there yet."""
        chunks = [
            Chunk(key, number, end)
            for number, (key, end) in enumerate(zip(job.chunks.keys, job.chunks.ends, strict=True))
            if NOWHERE not in job.pages[number] and not folder.holds(block_of(key))
        ]
        most = folder.content.most_blocks
        for part in parts_of(chunks, self._pages.layout.chunk_tokens, most):
            if folder.may_save:
                self._save_part(job, folder, part)

    def _save_part(self, job: Job, folder: ArtefactFolder, part: Sequence[Chunk]) -> None:
        """Saves one artefact."""
        layout, end = self._pages.layout, part[0].end

        def save() -> int | None:
            with job.using:
                if job.dropped:
                    return None
                publish = self._coder.take(
                    folder,
                    [block_of(chunk.key) for chunk in part],
                    [page for chunk in part for page in job.pages[chunk.number]],
                    self._timeouts[1],
                    None if end is None else end - layout.chunk_tokens,
                )
            return publish()

        self._attempts.save(len(part), len(part) * layout.chunk_bytes, save)

    def _load(self, job: Job, folder: ArtefactFolder) -> None:
        """Restores the chunks of a job, one artefact after the other."""
        parts: dict[Path | None, list[int]] = {}
        for number, key in enumerate(job.chunks.keys):
            parts.setdefault(folder.artefact_of(block_of(key)), []).append(number)
        for artefact, numbers in parts.items():
            with job.using:
                if artefact is None or job.dropped:
                    continue
                if self._load_part(job, folder, artefact, numbers):
                    job.failed -= set(numbers)
        keys = job.chunks.keys
        job.kept.update(each for each in job.failed if folder.holds(block_of(keys[each])))

    def _load_part(
        self, job: Job, folder: ArtefactFolder, artefact: Path, numbers: Sequence[int]
    ) -> bool:
        """Restores chunks of one artefact; returns whether they are there."""
        layout = self._pages.layout

        def restore(found: Found) -> None:
            places = {
                found.blocks.index(block_of(job.chunks.keys[number])): job.pages[number]
                for number in numbers
            }
            first, end = min(places), max(places) + 1
            nowhere = [NOWHERE] * layout.pages
            pages = [page for place in range(first, end) for page in places.get(place, nowhere)]
            tokens = first * layout.chunk_tokens, end * layout.chunk_tokens
            self._coder.restore(folder, found, tokens, pages, self._timeouts[0])

        return self._attempts.load(folder, artefact, len(numbers) * layout.chunk_bytes, restore)
