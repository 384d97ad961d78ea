# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The tier of kvcompress.integrations.vllm."""

import logging
import queue
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from vllm.v1.kv_offload.base import (  # type: ignore[import-not-found,unused-ignore]
    Locality,
    LookupResult,
    Medium,
    OffloadingEvent,
    OffloadingMetricMetadata,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.tiering.base import (  # type: ignore[import-not-found,unused-ignore]
    JobResult,
    SecondaryTierManager,
    TransferJob,
)

from kvcompress.integrations._artefact_folder import ArtefactFolder, Found
from kvcompress.integrations._service import Service
from kvcompress.integrations._vllm_adapters import take
from kvcompress.integrations._vllm_attempts import Attempts
from kvcompress.integrations._vllm_chunks import Chunk, block_of, group_of, parts_of
from kvcompress.integrations._vllm_folders import (
    Events,
    Folders,
    layouts_of,
    open_store,
    options_of,
)
from kvcompress.integrations._vllm_lookup import Lookup
from kvcompress.integrations._vllm_metrics import DEFINITIONS, Metrics

_LOG = logging.getLogger(__name__)

_USES = ("load", "restore", "save")  # of threads; those that load wait for those that restore


class KVCompressTier(SecondaryTierManager):  # type: ignore[misc,unused-ignore]
    """Keeps chunks of the primary tier in a folder of artefacts.

    A job's chunks are compressed in runs of up to `artefact_tokens`: one alone is too small for
    a good ratio. Any of them can be restored alone.
    """

    medium: ClassVar[Medium] = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: Any,  # noqa: ANN401
        primary_kv_view: memoryview,
        tier_type: str,
        folder: str,
        groups: Sequence[dict[str, Any]],
        identity: dict[str, str],
        server: str | None = None,
        codec: str = "auto",
        effort: str = "fast",
        profile: str | None = None,
        profile_directory: str | None = None,
        artefact_tokens: int = 512,
        threads: int = 2,
        timeout: float | None = None,
        store_timeout: float | None = None,
        store: dict[str, Any] | None = None,
        locality: str | None = None,
        backpressure_detector: Any = None,  # noqa: ANN401
    ) -> None:
        """Makes the folders of all groups.

        Args:
            offloading_spec: What vLLM passes to every tier, as the next two.
            primary_kv_view: All chunks of the primary tier.
            tier_type: The tier's name in metrics.
            folder: Where artefacts are kept.
            groups: By group of layers the fields of a `PageLayout`, found by KVCompressConnector.
            identity: What caches depend on other than their tokens; bound to each artefact.
            server: Address of a service; None to start one.
            codec: As `CompressArguments` has it.
            effort: The same.
            profile: The same.
            profile_directory: Of its own service.
            artefact_tokens: Tokens of an artefact, at most; one chunk at least.
            threads: Artefacts that are restored, and jobs that are saved, at once.
            timeout: Seconds that restoring an artefact may take; None for what its size takes.
            store_timeout: Seconds that saving one may take; None in the same way.
            store: The bound of the folder, and more of `kvcompress.store.StoreOptions`.
            locality: `LOCAL` or `REMOTE`, where events are to say how far the folder is.
            backpressure_detector: vLLM's own.

        Raises:
            OSError: The folder cannot be used.
            TypeError: An option of the store has a name that there is not, or another type.
            ValueError: A layout does not fit, or an option of the store is out of its range.
        """
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = None if locality is None else Locality(locality.upper())
        self._view = np.frombuffer(primary_kv_view, np.uint8).reshape(primary_kv_view.shape)
        self._layouts = layouts_of(groups, self.block_size_bytes)
        self._store = open_store(folder, store)
        self._folders = Folders(self._store, identity, self._layouts, artefact_tokens)
        self._options = options_of(codec, effort, profile)
        self._timeout, self._store_timeout = timeout, store_timeout
        self._service = Service(server, profile_directory, threads=threads)
        # Without vLLM's own events nobody takes ours.
        self._start(threads, offloading_spec.kv_events_config.enable_kv_cache_events)

    def _start(self, threads: int, publishing: bool) -> None:
        """Makes the threads, so many for each use, and listens to the store."""
        self._metrics = Metrics(self._store)
        self._attempts = Attempts(self._service, self._metrics)
        self._events = Events(self.medium) if publishing else None
        if self._events is not None:
            self._folders.publish(self._events)
        pools = [ThreadPoolExecutor(threads, f"kvcompress-{use}") for use in _USES]
        self._loaders, self._restorers, self._savers = pools
        self._pending: set[Future[None]] = set()
        self._finished: queue.SimpleQueue[tuple[TransferJob, JobResult]] = queue.SimpleQueue()
        self._lookup = Lookup(self.tier_type, self.are_there)

    # What vLLM's scheduler calls; none of it waits.

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:  # noqa: ANN401
        """Notes the request's adapter; asks for nothing."""
        take(req_context)
        return RequestOffloadingContext()

    def lookup(self, key: bytes, req_context: Any) -> LookupResult:  # noqa: ANN401
        """Returns whether a chunk is there; RETRY until that is known."""
        return self._lookup.result(key, req_context)

    def submit_store(self, job_metadata: TransferJob) -> None:
        """Begins to save a job's chunks."""
        self._submit(self._savers, self._save, job_metadata)

    def submit_load(self, job_metadata: TransferJob) -> None:
        """Begins to restore a job's chunks."""
        self._submit(self._loaders, self._load, job_metadata)

    def get_finished_jobs(self) -> Iterable[JobResult]:
        """Returns what has ended since the last call."""
        results: list[JobResult] = []
        while True:
            try:
                job, result = self._finished.get_nowait()
            except queue.Empty:
                return results
            if job.is_promotion and not result.success:
                self._lookup.mark_miss(set(job.keys) - set(result.successful_keys or ()))
            results.append(result)

    def touch(self, keys: Collection[bytes], req_context: Any) -> None:  # noqa: ANN401
        """Marks chunks that the primary tier serves as used here, a little later."""
        self._savers.submit(self._touch, list(keys), req_context)

    def on_request_finished(self, req_context: Any) -> None:  # noqa: ANN401
        """Forgets what was looked up for a request."""
        self._lookup.cleanup(req_context.req_id)

    def on_schedule_end(self, context: Any) -> None:  # noqa: ANN401
        """Lets look-ups begin."""
        self._lookup.flush()

    def drain_jobs(self) -> None:
        """Waits for all jobs."""
        wait(self._pending)

    def shutdown(self) -> None:
        """Ends the threads, and the service if it is the engine's own."""
        self._lookup.shutdown()
        for pool in (self._savers, self._restorers, self._loaders):
            pool.shutdown(wait=True, cancel_futures=True)
        self._service.close()
        self._store.close()

    def take_events(self) -> Iterable[OffloadingEvent]:
        """Returns the chunks that were stored and removed since the last call."""
        return () if self._events is None else self._events.take(self.locality)

    @classmethod
    def build_metric_definitions(
        cls, extra_config: dict[str, Any]
    ) -> dict[str, OffloadingMetricMetadata]:
        """Returns the metrics of this tier."""
        return DEFINITIONS

    def get_stats(self) -> Any:  # noqa: ANN401
        """Returns the counters' increase since the last call."""
        return self._metrics.take()

    # What runs on threads.

    def are_there(self, keys: Sequence[bytes], req_context: Any) -> list[bool]:  # noqa: ANN401
        """Returns for each key whether there is an artefact, and a service to restore it."""
        if self._service.paused:
            return [False] * len(keys)
        return self._folders.are_there(keys, req_context)

    def _touch(self, keys: Iterable[bytes], req_context: Any) -> None:  # noqa: ANN401
        """Notes the use of chunks, group by group."""
        folders = self._folders.of(req_context)
        if folders is None:
            return
        blocks: dict[int, list[str]] = {}
        for key in keys:
            blocks.setdefault(group_of(key), []).append(block_of(key))
        for group, some in blocks.items():
            folders[group].runs.touch(some)

    def _submit(
        self,
        pool: ThreadPoolExecutor,
        run: Callable[[TransferJob], set[bytes]],
        job: TransferJob,
    ) -> None:
        """Runs a job on a thread; it returns the keys that it has succeeded with."""

        def task() -> None:
            done: set[bytes] = set()
            began = time.monotonic()
            try:
                done = run(job)
            except Exception:
                _LOG.exception("job %d ended unfinished", job.job_id)
            finally:
                result = JobResult(
                    job_id=job.job_id,
                    success=len(done) == len(set(job.keys)),
                    successful_keys=done if job.is_promotion else None,
                    transfer_time=time.monotonic() - began,
                    transfer_bytes=len(done) * self.block_size_bytes,
                )
                self._finished.put((job, result))

        future = pool.submit(task)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)

    def _save(self, job: TransferJob) -> set[bytes]:
        """Saves the chunks of a job that are not there yet."""
        done: set[bytes] = set()
        folders = self._folders.of(job.req_context)
        if folders is None:
            return done
        missing: dict[int, list[Chunk]] = {}
        for key, number in zip(job.keys, map(int, job.chunk_ids), strict=True):
            group = group_of(key)
            if folders[group].holds(block_of(key)):
                done.add(key)
                continue
            end = job.req_context.get_offload_key_position(key)
            missing.setdefault(group, []).append(Chunk(key, number, end))
        for group, chunks in missing.items():
            tokens = self._layouts[group].chunk_tokens
            for part in parts_of(chunks, tokens, folders[group].content.most_blocks):
                if self._save_run(group, folders[group], part):
                    done.update(chunk.key for chunk in part)
        return done

    def _save_run(self, group: int, folder: ArtefactFolder, run: Sequence[Chunk]) -> bool:
        """Saves one artefact; returns whether it is there."""
        layout, end = self._layouts[group], run[0].end
        if not folder.may_save:
            return False

        def save() -> int:
            tensors = layout.gather(self._view, [chunk.number for chunk in run])
            return folder.save(
                self._service.client(),
                [block_of(chunk.key) for chunk in run],
                tensors,
                {**self._options, "layout": layout.notation},
                self._store_timeout,
                first_token=None if end is None else end - layout.chunk_tokens,
            )

        return self._attempts.save(len(run), len(run) * layout.chunk_bytes, save)

    def _load(self, job: TransferJob) -> set[bytes]:
        """Restores the chunks of a job, several artefacts at once."""
        done: set[bytes] = set()
        folders = self._folders.of(job.req_context)
        if folders is None:
            return done
        runs: dict[tuple[int, Path | None], list[tuple[bytes, int]]] = {}
        for key, chunk in zip(job.keys, map(int, job.chunk_ids), strict=True):
            group = group_of(key)
            artefact = folders[group].artefact_of(block_of(key))
            runs.setdefault((group, artefact), []).append((key, chunk))
        loads = [
            (run, self._restorers.submit(self._load_run, group, folders[group], artefact, run))
            for (group, artefact), run in runs.items()
            if artefact is not None
        ]
        for run, load in loads:
            if load.result():
                done.update(key for key, _ in run)
        return done

    def _load_run(
        self,
        group: int,
        folder: ArtefactFolder,
        artefact: Path,
        run: Sequence[tuple[bytes, int]],
    ) -> bool:
        """Restores chunks of one artefact, after every check; returns whether they are there."""
        layout = self._layouts[group]
        blocks = [block_of(key) for key, _ in run]

        def restore(found: Found) -> None:
            wanted = [found.blocks.index(block) for block in blocks]
            first, end = (min(wanted), max(wanted) + 1) if layout.by_tokens else (0, None)
            tokens = (
                None if end is None else (first * layout.chunk_tokens, end * layout.chunk_tokens)
            )
            exchange = self._service.exchange()
            tensors = folder.restore(exchange, found, tokens, self._timeout)
            layout.scatter(
                tensors,
                [index - first for index in wanted],
                self._view,
                [chunk for _, chunk in run],
            )

        return self._attempts.load(folder, artefact, len(run) * layout.chunk_bytes, restore)
