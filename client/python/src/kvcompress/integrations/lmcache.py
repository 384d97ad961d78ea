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
from lmcache.v1.distributed.api import (  # type: ignore[import-not-found,unused-ignore]
    KeyListPage,
)
from lmcache.v1.distributed.internal_api import (  # type: ignore[import-not-found,unused-ignore]
    L2StoreResult,
)
from lmcache.v1.distributed.l2_adapters.base import (  # type: ignore[import-not-found,unused-ignore]
    AdapterUsage,
    L2AdapterInterface,
)
from lmcache.v1.platform import (  # type: ignore[import-not-found,unused-ignore]
    create_event_notifier,
)

from kvcompress._foreign_files import ForeignFileError
from kvcompress.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    KVCompressError,
)
from kvcompress.integrations._contents import NotThisError, most_bytes
from kvcompress.integrations._hopeless import Hopeless, is_lasting
from kvcompress.integrations._lmcache_chunks import kinds_of, read, write
from kvcompress.integrations._lmcache_keys import Keys, held, list_keys
from kvcompress.integrations._lmcache_service import Parameters, Service, ServiceDownError
from kvcompress.integrations._lmcache_store import Folder, open_store
from kvcompress.integrations._logs import prepare_logs
from kvcompress.store import Event

_LOG = logging.getLogger(__name__)
_STORING = "storing"
_DAMAGE = (
    DataLossError,
    ForeignFileError,
    InvalidArgumentError,
    NotThisError,
)
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
        prepare_logs()
        self._parameters = Parameters.parse(params)
        location = self._parameters.path or self._parameters.url or ""
        options, bound = self._parameters.storage_options, self._parameters.bound
        self._store = open_store(location, options, bound)
        folder = self._store if isinstance(self._store, Folder) else None
        super().__init__(0 if folder is None else folder.store.capacity_bytes)
        self._folder = folder
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
        # LMCache adds up what this process stored, and gets no more when it goes.
        self._keys = Keys(self._parameters.identity)
        if folder is not None:
            folder.store.subscribe(self._evicted)
        self._counters = Counter(dict.fromkeys(_COUNTERS, 0))
        self._hopeless = Hopeless()

    # Event descriptors.

    def get_store_event_fd(self) -> int:
        """Returns the descriptor that signals stores."""
        return int(self._events["store"].fileno())

    def get_lookup_and_lock_event_fd(self) -> int:
        """Returns the descriptor that signals lookups."""
        return int(self._events["lookup"].fileno())

    def get_load_event_fd(self) -> int:
        """Returns the descriptor that signals loads."""
        return int(self._events["load"].fileno())

    # Store.

    def submit_store_task(self, keys: list[Any], objects: list[Any]) -> int:
        """Begins to store chunks; those that are there stay."""
        task = self._next_task()
        self._writers.submit(self._store_task, task, list(keys), list(objects))
        return task

    def pop_completed_store_tasks(self) -> dict[int, L2StoreResult]:
        """Returns the results of stores that ended since the last call."""
        with self._lock:
            done, self._stores = self._stores, {}
        return done

    def _store_task(self, task: int, keys: list[Any], objects: list[Any]) -> None:
        """Stores chunks and notifies LMCache."""
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
                before = self._keys.add(stored)
                if before:  # somebody else removed them
                    self._notify_keys_deleted(list(before), list(before.values()))
                self._notify_keys_stored(list(stored), list(stored.values()))
        finally:
            with self._lock:
                self._stores[task] = L2StoreResult(success, sum(stored.values()))
            self._events["store"].notify()

    def _store_chunk(self, key: Any, memory: Any) -> int:  # noqa: ANN401
        """Stores a chunk; returns its size, 0 if it is there."""
        name = self._keys.name(key)
        if self._hopeless.includes(_STORING):
            raise ServiceDownError("chunks cannot be compressed in this way, and are not for now")
        if self._store.exists(name):
            return 0
        tensors, layout = read(memory, self._parameters.layout)
        try:
            artefact = self._service.compress(tensors, layout, self._keys.labels(key))
        except KVCompressError as error:
            if is_lasting(error):
                self._hopeless.note(_STORING)
            raise
        self._store.write(name, artefact)
        source = sum(each.numel() * each.element_size() for each in tensors.values())
        self._count(stored=1, stored_bytes=len(artefact), source_bytes=source)
        return len(artefact)

    # Lookup.

    def submit_lookup_and_lock_task(
        self, keys: list[Any], group_layout_descs: dict[int, Any]
    ) -> int:
        """Begins to look for chunks; the store of a folder evicts none that are found."""
        task = self._next_task()
        self._lookups.submit(self._lookup_task, task, list(keys))
        return task

    def query_lookup_and_lock_result(self, task_id: int) -> Bitmap | None:
        """Returns which chunks are there, once; None while it is not known."""
        with self._lock:
            return self._found.pop(task_id, None)

    def submit_unlock(self, keys: list[Any]) -> None:
        """Lets chunks be evicted again."""
        if self._folder is not None:
            self._folder.chunks.unpin(self._keys.name(key) for key in keys)

    def _lookup_task(self, task: int, keys: list[Any]) -> None:
        """Looks for chunks, none of which are there while the service is down."""
        found = Bitmap(len(keys))
        try:
            if self._service.is_up():
                for index, key in enumerate(keys):
                    name = self._keys.name(key)
                    if self._hopeless.includes(name) or not self._store.exists(name):
                        continue
                    found.set(index)
                    if self._folder is not None:
                        self._folder.chunks.pin([name])
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
        """Returns which chunks were loaded, once; None while it is not known."""
        with self._lock:
            return self._loads.pop(task_id, None)

    def _finish_load(self, task: int, keys: list[Any], loaded: Bitmap) -> None:
        """Notifies LMCache of a load that ended."""
        try:
            if hits := [keys[index] for index in loaded.get_indices_list()]:
                self._notify_keys_accessed(hits)
        finally:
            with self._lock:
                self._loads[task] = loaded
            self._events["load"].notify()

    def _load_chunk(self, key: Any, memory: Any) -> bool:  # noqa: ANN401
        """Loads a chunk; returns whether it is there."""
        name = self._keys.name(key)
        try:
            kinds = kinds_of(memory, self._parameters.layout)
            artefact = self._store.read(name, most_bytes(kinds))
            restored = self._service.restore(artefact, self._keys.labels(key), kinds)
            write(restored, memory, self._parameters.layout)
        except FileNotFoundError:
            return False
        except FailedPreconditionError as error:
            # As where the server does not have its profile. It may be right some time.
            self._hopeless.note(name)
            self._miss("load_failures", "loading", key, error)
        except _DAMAGE as error:
            # It never will be right: space for what the engine computes now.
            self._miss("damaged", "loading", key, error)
            self._drop(name, key)
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
        """Removes chunks, but for those that are being read."""
        names = {self._keys.name(key): key for key in keys}
        try:
            removed = self._store.remove(names)
        except OSError as error:
            _LOG.warning("removing %d chunks failed: %s", len(keys), error)
            return
        # Of those that are left, somebody else has removed some, and some are being read.
        lost = [name for name in names if name not in removed and self._keys.key(name)]
        gone = {*removed, *(name for name in lost if not self._store.exists(name))}
        self._tell_gone({name: names[name] for name in gone})

    def list_l2_keys(
        self,
        model_name: str | None = None,
        page_size: int = 500,
        cursor: str | None = None,
    ) -> KeyListPage:
        """Lists the keys of chunks in a folder, whichever server has stored them.

        Raises:
            NotImplementedError: Chunks are not in a folder.
            ValueError: The size of the page is not positive.
        """
        if self._folder is None:
            raise NotImplementedError("chunks are listed where they are in a folder (path)")
        return list_keys(self._folder.chunks, self._keys, model_name, page_size, cursor)

    def get_usage(self) -> AdapterUsage:
        """Returns what the folder holds, of all servers; or else what this one has stored."""
        usage = super().get_usage()
        if self._folder is None:
            return usage
        stats = self._folder.store.stats()
        return AdapterUsage(stats.bytes, stats.capacity_bytes, usage.bytes_by_cache_salt)

    def _evicted(self, event: Event) -> None:
        """Notifies LMCache of a chunk that the store has removed by itself."""
        if event.action == "removed" and event.reason not in ("asked", "damaged"):
            key = self._keys.key(event.artefact)
            if key is not None:
                self._tell_gone({event.artefact: key})

    def _drop(self, name: str, key: Any) -> None:  # noqa: ANN401
        """Removes a chunk that is of no use."""
        try:
            self._store.discard(name)
        except OSError as error:
            _LOG.warning("removing chunk %s failed: %s", key.chunk_hash.hex(), error)
        else:
            self._tell_gone({name: key})

    def _tell_gone(self, gone: dict[str, Any]) -> None:
        """Notifies LMCache of chunks that are not there any more."""
        if gone:
            self._notify_keys_deleted(list(gone.values()), self._keys.pop(gone))

    def report_status(self) -> dict[str, Any]:
        """Returns counters, and whether the service is up as far as is known."""
        with self._lock:
            counters = dict(self._counters)
        return {
            "is_healthy": self._service.is_up(),
            "type": type(self).__name__,
            "codec": self._parameters.codec,
            "layout": self._parameters.layout.form,
            **counters,
            **({} if self._folder is None else held(self._folder.store)),
        }

    def close(self) -> None:
        """Ends what is under way, and the server if it is the adapter's own."""
        for pool in (self._lookups, self._readers, self._writers):
            pool.shutdown(wait=True, cancel_futures=True)
        self._service.close()
        if self._folder is not None:
            self._folder.store.close()
        for event in self._events.values():
            event.close()

    def _next_task(self) -> int:
        """Returns a number for a task."""
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
