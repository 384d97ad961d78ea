# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""An L2 adapter of LMCache: chunks are stored as artefacts, and loaded after every check.

LMCache loads it by its name, into the process of `lmcache server`:

    lmcache server ... --l2-adapter '{"type": "plugin",
      "module_path": "kvcompress.integrations.lmcache", "class_name": "KVCompressAdapter",
      "adapter_params": {"path": "/cache", "layout": "kv", "head_dim": 128}}'

A chunk's key (model, hash, rank, group, salt) is bound to its artefact. What is damaged, of
another key, or cannot be had in time is a cache miss: the engine computes it.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from lmcache.lmcache_native import Bitmap  # type: ignore[import-not-found,unused-ignore]
from lmcache.v1.distributed.internal_api import (  # type: ignore[import-not-found,unused-ignore]
    L2StoreResult,
)
from lmcache.v1.distributed.l2_adapters.base import (  # type: ignore[import-not-found,unused-ignore]
    L2AdapterInterface,
)
from lmcache.v1.platform import (  # type: ignore[import-not-found,unused-ignore]
    create_event_notifier,
)

from kvcompress.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    KVCompressError,
)
from kvcompress.integrations._lmcache_chunks import OtherChunkError, check, labels_of, read, write
from kvcompress.integrations._lmcache_service import Parameters, Service, ServiceDownError
from kvcompress.integrations._lmcache_store import name_of, open_store

_LOG = logging.getLogger(__name__)
_DAMAGE = (DataLossError, FailedPreconditionError, InvalidArgumentError, OtherChunkError)
_COUNTERS = (
    "stored",
    "stored_bytes",
    "source_bytes",
    "store_failures",
    "loaded",
    "damaged",
    "unavailable",
    "load_failures",
)


class KVCompressAdapter(L2AdapterInterface):  # type: ignore[misc,unused-ignore]
    """Stores chunks as artefacts of the size that they happen to have. Thread safe.

    `report_status`, which `GET /status` of LMCache's server shows, counts chunks stored, with
    their bytes before and after, chunks loaded, and misses by cause: `damaged` (or of another
    key, or not what the chunk should be), `unavailable` (no service) and `load_failures`.
    """

    def __init__(self, params: dict[str, Any], **_: object) -> None:
        """Takes `adapter_params`; `Parameters` in `_lmcache_service.py` documents them.

        Raises:
            ImportError: A package is missing that the URL needs.
            OSError: The folder cannot be made, or no server can be started.
            TypeError: A parameter has another type, or a name that there is not.
            ValueError: A parameter has a value that it cannot have.
        """
        super().__init__()
        self._parameters = Parameters.parse(params)
        location = self._parameters.path or self._parameters.url or ""
        self._store = open_store(location, self._parameters.storage_options)
        self._service = Service(self._parameters)
        workers = self._parameters.workers
        # Stores wait for each other, and never keep a lookup or a load waiting.
        self._writers = ThreadPoolExecutor(1, "kvcompress-store")
        self._readers = ThreadPoolExecutor(workers, "kvcompress-load")
        self._lookups = ThreadPoolExecutor(1, "kvcompress-lookup")
        self._events = {kind: create_event_notifier() for kind in ("store", "lookup", "load")}
        self._lock = threading.Lock()
        self._last_task = 0
        self._stores: dict[int, L2StoreResult] = {}
        self._found: dict[int, Bitmap] = {}
        self._loads: dict[int, Bitmap] = {}
        # LMCache adds up what this process stored, and is told of no more when it goes.
        self._sizes: dict[Any, int] = {}
        self._counters = Counter(dict.fromkeys(_COUNTERS, 0))

    # Event descriptors.

    def get_store_event_fd(self) -> int:
        """Gives the descriptor that tells of stores."""
        return int(self._events["store"].fileno())

    def get_lookup_and_lock_event_fd(self) -> int:
        """Gives the descriptor that tells of lookups."""
        return int(self._events["lookup"].fileno())

    def get_load_event_fd(self) -> int:
        """Gives the descriptor that tells of loads."""
        return int(self._events["load"].fileno())

    # Store.

    def submit_store_task(self, keys: list[Any], objects: list[Any]) -> int:
        """Begins to store chunks; those that are there stay."""
        task = self._next_task()
        self._writers.submit(self._store_task, task, list(keys), list(objects))
        return task

    def pop_completed_store_tasks(self) -> dict[int, L2StoreResult]:
        """Gives the results of stores that ended since the last call."""
        with self._lock:
            done, self._stores = self._stores, {}
        return done

    def _store_task(self, task: int, keys: list[Any], objects: list[Any]) -> None:
        """Stores chunks and tells LMCache."""
        stored, success = {}, True
        for key, memory in zip(keys, objects, strict=True):
            try:
                size = self._store_chunk(key, memory)
                if size:
                    stored[key] = size
            except Exception as error:
                success = False
                self._miss("store_failures", "storing", key, error)
        try:
            if stored:
                with self._lock:
                    before = {key: self._sizes.pop(key) for key in stored if key in self._sizes}
                    self._sizes.update(stored)
                if before:  # somebody else removed them
                    self._notify_keys_deleted(list(before), list(before.values()))
                self._notify_keys_stored(list(stored), list(stored.values()))
        finally:
            with self._lock:
                self._stores[task] = L2StoreResult(success, sum(stored.values()))
            self._events["store"].notify()

    def _store_chunk(self, key: Any, memory: Any) -> int:  # noqa: ANN401
        """Stores a chunk; gives its size, 0 if it is there."""
        labels = labels_of(key)
        name = name_of(labels)
        if self._store.exists(name):
            return 0
        tensors, layout = read(memory, self._parameters.layout)
        artefact = self._service.compress(tensors, layout, labels)
        self._store.write(name, artefact)
        source = sum(each.numel() * each.element_size() for each in tensors.values())
        self._count(stored=1, stored_bytes=len(artefact), source_bytes=source)
        return len(artefact)

    # Lookup.

    def submit_lookup_and_lock_task(
        self, keys: list[Any], group_layout_descs: dict[int, Any]
    ) -> int:
        """Begins to look for chunks. Nothing is locked: a chunk that goes is a miss."""
        task = self._next_task()
        self._lookups.submit(self._lookup_task, task, list(keys))
        return task

    def query_lookup_and_lock_result(self, task_id: int) -> Bitmap | None:
        """Gives which chunks are there, once; None while it is not known."""
        with self._lock:
            return self._found.pop(task_id, None)

    def submit_unlock(self, keys: list[Any]) -> None:
        """Does nothing: nothing is locked."""

    def _lookup_task(self, task: int, keys: list[Any]) -> None:
        """Looks for chunks, none of which are there while the service is down."""
        found = Bitmap(len(keys))
        try:
            if self._service.is_up():
                for index, key in enumerate(keys):
                    if self._store.exists(name_of(labels_of(key))):
                        found.set(index)
        except Exception as error:
            _LOG.warning("looking for chunks failed: %s", error)
        finally:
            with self._lock:
                self._found[task] = found
            self._events["lookup"].notify()

    # Load.

    def submit_load_task(self, keys: list[Any], objects: list[Any]) -> int:
        """Begins to load chunks, several at once, into memory objects.

        An object changes only if its chunk passed every check.
        """
        task = self._next_task()
        keys, loaded, left = list(keys), Bitmap(len(keys)), [len(keys)]

        def ended(index: int, future: "Future[bool]") -> None:
            with self._lock:
                if not future.cancelled() and future.result():
                    loaded.set(index)
                left[0] -= 1
                if left[0]:
                    return
            self._finish_load(task, keys, loaded)

        for index, (key, memory) in enumerate(zip(keys, objects, strict=True)):
            future = self._readers.submit(self._load_chunk, key, memory)
            future.add_done_callback(_callback(ended, index))
        if not keys:
            self._finish_load(task, keys, loaded)
        return task

    def query_load_result(self, task_id: int) -> Bitmap | None:
        """Gives which chunks were loaded, once; None while it is not known."""
        with self._lock:
            return self._loads.pop(task_id, None)

    def _finish_load(self, task: int, keys: list[Any], loaded: Bitmap) -> None:
        """Tells LMCache of a load that ended."""
        try:
            if hits := [keys[index] for index in loaded.get_indices_list()]:
                self._notify_keys_accessed(hits)
        finally:
            with self._lock:
                self._loads[task] = loaded
            self._events["load"].notify()

    def _load_chunk(self, key: Any, memory: Any) -> bool:  # noqa: ANN401
        """Loads a chunk; tells whether it is there."""
        labels = labels_of(key)
        name = name_of(labels)
        try:
            check(memory, self._parameters.layout)
            restored = self._service.restore(self._store.read(name), labels)
            write(restored, memory, self._parameters.layout)
        except FileNotFoundError:
            return False
        except _DAMAGE as error:
            # It never will be right: room for what the engine computes now.
            self._miss("damaged", "loading", key, error)
            self.delete([key])
        except ServiceDownError as error:
            self._miss("unavailable", "loading", key, error)
        except Exception as error:
            self._miss("load_failures", "loading", key, error)
        else:
            self._count(loaded=1)
            return True
        return False

    # Others.

    def delete(self, keys: list[Any]) -> None:
        """Removes chunks."""
        gone = {}
        for key in keys:
            there = True
            try:
                self._store.remove(name_of(labels_of(key)))
            except FileNotFoundError:
                there = False
            except OSError as error:
                _LOG.warning("removing chunk %s failed: %s", key.chunk_hash.hex(), error)
                continue
            with self._lock:
                if there or key in self._sizes:
                    gone[key] = self._sizes.pop(key, 0)
        if gone:
            self._notify_keys_deleted(list(gone), list(gone.values()))

    def report_status(self) -> dict[str, Any]:
        """Gives counters, and whether the service is up as far as is known."""
        with self._lock:
            counters = dict(self._counters)
        return {
            "is_healthy": self._service.is_up(),
            "type": type(self).__name__,
            "codec": self._parameters.codec,
            "layout": self._parameters.layout.form,
            **counters,
        }

    def close(self) -> None:
        """Ends what is under way, and the server if it is the adapter's own."""
        for pool in (self._lookups, self._readers, self._writers):
            pool.shutdown(wait=True, cancel_futures=True)
        self._service.close()
        for event in self._events.values():
            event.close()

    def _next_task(self) -> int:
        """Gives a number for a task."""
        with self._lock:
            self._last_task += 1
            return self._last_task

    def _count(self, **more: int) -> None:
        """Adds to counters."""
        with self._lock:
            self._counters.update(more)

    def _miss(self, counter: str, action: str, key: Any, error: Exception) -> None:  # noqa: ANN401
        """Counts and logs a chunk that the engine has to do without."""
        self._count(**{counter: 1})
        cause = str(error) if isinstance(error, KVCompressError | OSError) else repr(error)
        _LOG.warning("%s chunk %s failed: %s", action, key.chunk_hash.hex(), cause)


def _callback(
    function: "Callable[[int, Future[bool]], None]", index: int
) -> "Callable[[Future[bool]], None]":
    """Binds an index, which a loop changes."""
    return lambda future: function(index, future)
