# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Where the pages of one of SGLang's host pools are kept: a folder of artefacts, and a service."""

import hashlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.errors import (
    CallCancelledError,
    DataLossError,
    KVCompressError,
    UnavailableError,
)
from kvcompress.integrations._artefact_folder import ArtefactFolder
from kvcompress.integrations._service import Service
from kvcompress.integrations._sglang_pages import HostPages
from kvcompress.integrations._sglang_parameters import Parameters
from kvcompress.options import CompressArguments
from kvcompress.store import ArtefactStore

_LOG = logging.getLogger(__name__)

_COUNTERS = ("saved", "saved_bytes", "source_bytes", "loaded", "damaged", "unavailable", "failed")
_MOST_BATCHES = 1000  # that are kept for whoever asks

Row: TypeAlias = torch.Tensor | None


class Backend:
    """What the pools of an engine share. Thread safe.

    Attributes:
        parameters: Of the configuration.
        options: Of calls.
        service: Restores and compresses.
        store: Where artefacts are.
        loaders: Threads that load.
        transfers: What was moved since SGLang asked last.
    """

    def __init__(self, parameters: Parameters) -> None:
        """Opens the store and makes threads; the first call connects to the service.

        Raises:
            OSError: The folder cannot be used.
        """
        self.parameters = parameters
        self.options = parameters.options()
        profiles, threads = parameters.profile_directory, parameters.threads
        self.service = Service(parameters.server, profiles, threads=threads)
        self.store = ArtefactStore(parameters.folder, parameters.store)
        self.transfers = Transfers()
        self.loaders = ThreadPoolExecutor(parameters.threads, "kvcompress-load")
        self._lock = threading.Lock()
        self._counters = Counter(dict.fromkeys(_COUNTERS, 0))

    def count(self, **more: int) -> None:
        """Adds to counters."""
        with self._lock:
            self._counters.update(more)

    def counters(self) -> dict[str, int]:
        """Returns pages saved and loaded, bytes, failed artefacts, and what the store holds."""
        held = self.store.stats()
        with self._lock:
            return {
                **self._counters,
                "capacity_bytes": held.capacity_bytes,
                "held_bytes": held.bytes,
                "held_artefacts": held.artefacts,
                "evicted": held.evictions.get("capacity", 0),
                "evicted_bytes": held.evicted_bytes,
                "evicted_unread": held.evicted_unread,
            }

    def close(self) -> None:
        """Ends the threads, and the server if it is the engine's own."""
        self.loaders.shutdown(wait=True, cancel_futures=True)
        self.service.close()
        self.store.close()


class Transfers:
    """Batches of pages, as SGLang's page of metrics has them. Thread safe."""

    def __init__(self) -> None:
        """Begins with none."""
        self._lock = threading.Lock()
        self._batches: dict[str, list[tuple[int, float]]] = {"load": [], "save": []}

    @contextmanager
    def timed(self, kind: str) -> Iterator[list[int]]:
        """Times a batch; the caller puts pages and bytes into the list."""
        moved: list[int] = []
        began = time.perf_counter()
        yield moved
        pages, size = moved
        if pages:
            speed = size / 1e9 / max(time.perf_counter() - began, 1e-9)
            with self._lock:
                self._batches[kind] = [*self._batches[kind][1 - _MOST_BATCHES :], (pages, speed)]

    def take(self, kind: str) -> tuple[list[int], list[float]]:
        """Returns pages and GB/s of each batch since the last call."""
        with self._lock:
            batches, self._batches[kind] = self._batches[kind], []
        return [pages for pages, _ in batches], [speed for _, speed in batches]


class PoolStore:
    """The pages of a pool, each cut into groups of heads, which have folders. Thread safe.

    Attributes:
        pages: What is in a page.
    """

    def __init__(
        self, backend: Backend, pages: HostPages, folders: Sequence[ArtefactFolder]
    ) -> None:
        """Takes what is in a page, and the folder of each group of heads, the first heads first.

        Raises:
            ValueError: The heads cannot be cut into so many groups.
        """
        self._backend, self.pages = backend, pages
        part = pages.part(len(folders))
        self._parts = [PageStore(backend, part, folder) for folder in folders]

    def holds(self, key: str) -> bool:
        """Returns whether there are artefacts of a page, for all heads."""
        return all(part.holds(key) for part in self._parts)

    def leading(self, keys: Sequence[str]) -> int:
        """Returns how many pages there are, from the first one on; none without a service."""
        count = len(keys)
        for part in self._parts:
            count = part.leading(keys[:count])
        return count

    def load(self, keys: Sequence[str]) -> list[Row]:
        """Returns pages; None for those that are not there with all heads."""
        with self._backend.transfers.timed("load") as moved:
            parts = zip(*(part.load(keys) for part in self._parts), strict=True)
            found = [[row for row in rows if row is not None] for rows in parts]
            whole = [each if len(each) == len(self._parts) else None for each in found]
            pages = [None if each is None else self.pages.join(each) for each in whole]
            count = sum(page is not None for page in pages)
            moved += (count, count * self.pages.page_bytes)
        return pages

    def save(self, keys: Sequence[str], row: Callable[[int], torch.Tensor]) -> list[bool]:
        """Saves pages that are not there yet; returns which are there, with all heads."""
        count = len(self._parts)

        def part_of(group: int) -> Callable[[int], torch.Tensor]:
            return lambda index: self.pages.split(row(index), count)[group]

        with self._backend.transfers.timed("save") as moved:
            done = [part.save(keys, part_of(group)) for group, part in enumerate(self._parts)]
            saved = max(new for _, new in done)
            moved += (saved, saved * self.pages.page_bytes)
        return [all(each) for each in zip(*(there for there, _ in done), strict=True)]

    def clear(self) -> int:
        """Removes the artefacts of all groups of heads; returns how many."""
        return sum(part.folder.runs.clear() for part in self._parts)


class PageStore:
    """The pages of a pool, or one group of heads of them. Thread safe."""

    def __init__(self, backend: Backend, pages: HostPages, folder: ArtefactFolder) -> None:
        """Takes what is in a page, and where artefacts are."""
        self._backend = backend
        self.pages, self.folder = pages, folder

    def holds(self, key: str) -> bool:
        """Returns whether there is an artefact of a page."""
        return self.folder.holds(_block(key))

    def leading(self, keys: Sequence[str]) -> int:
        """Returns how many pages there are, from the first one on; none without a service."""
        if self._backend.service.paused:
            return 0
        missing = (index for index, key in enumerate(keys) if not self.holds(key))
        return next(missing, len(keys))

    def load(self, keys: Sequence[str]) -> list[Row]:
        """Returns pages, artefact by artefact, several at once."""
        runs: dict[Path, list[int]] = {}
        for index, key in enumerate(keys):
            if (artefact := self.folder.artefact_of(_block(key))) is not None:
                runs.setdefault(artefact, []).append(index)
        blocks = [_block(key) for key in keys]
        loading = [
            (run, self._backend.loaders.submit(self._load_run, artefact, [blocks[i] for i in run]))
            for artefact, run in runs.items()
        ]
        rows: list[Row] = [None] * len(keys)
        for run, future in loading:
            for index, row in zip(run, future.result(), strict=True):
                rows[index] = row
        return rows

    def _load_run(self, artefact: Path, blocks: Sequence[str]) -> Sequence[Row]:
        """Returns pages of one artefact, after every check; None for all that failed."""
        nothing: Sequence[Row] = [None] * len(blocks)
        try:
            exchange = self._backend.service.exchange()
            found = self.folder.read(artefact)
            wanted = [found.blocks.index(block) for block in blocks]
            first, end = min(wanted), max(wanted) + 1
            tokens = None
            if self.pages.by_tokens:
                tokens = (first * self.pages.tokens, end * self.pages.tokens)
                wanted = [index - first for index in wanted]
            tensors = self.folder.restore(exchange, found, tokens, self._backend.parameters.timeout)
            rows = self.pages.scatter(tensors, wanted)
        except (DataLossError, ValueError) as error:
            self.folder.discard(artefact)
            self._note("damaged", f"{artefact} is not loaded, but computed", error)
            return nothing
        except (KVCompressError, OSError) as error:
            if self.folder.is_there(artefact):  # or else somebody has deleted it
                self._note(_reason(error), f"{artefact} is not loaded, but computed", error)
            return nothing
        self._backend.service.succeeded()
        self._backend.count(loaded=len(rows))
        return rows

    def save(
        self, keys: Sequence[str], row: Callable[[int], torch.Tensor]
    ) -> tuple[list[bool], int]:
        """Saves pages that are missing, in runs; returns which are there, and how many are new."""
        there = [self.folder.holds(_block(key)) for key in keys]
        most = self.folder.content.most_blocks
        # Tokens of an artefact follow one another: a page that is there ends a run.
        runs: list[list[int]] = [[]]
        for index, is_there in enumerate(there):
            if is_there or len(runs[-1]) == most:
                runs.append([])
            if not is_there:
                runs[-1].append(index)
        saved = 0
        for run in filter(None, runs):
            if not self.folder.may_save:
                break
            if not self._save_run([_block(keys[i]) for i in run], [row(i) for i in run]):
                break
            saved += len(run)
            for index in run:
                there[index] = True
        return there, saved

    def _save_run(self, blocks: Sequence[str], rows: Sequence[torch.Tensor]) -> bool:
        """Saves one artefact; returns whether it is there."""
        try:
            client = self._backend.service.client()
            options: CompressArguments = {**self._backend.options}
            if self.pages.axes:
                options["layout"] = self.pages.notation
            tensors = self.pages.gather(rows)
            timeout = self._backend.parameters.store_timeout
            size = self.folder.save(client, blocks, tensors, options, timeout)
        except (KVCompressError, OSError, ValueError) as error:
            self._note(_reason(error), f"{len(blocks)} pages are not saved", error)
            return False
        self._backend.service.succeeded()
        source = len(blocks) * self.pages.page_bytes
        self._backend.count(saved=len(blocks), saved_bytes=size, source_bytes=source)
        return True

    def _note(self, counter: str, what: str, error: Exception) -> None:
        """Logs and counts what did not work."""
        if counter == "unavailable":
            self._backend.service.failed()
        self._backend.count(**{counter: 1})
        _LOG.warning("%s: %s", what, error)


def _block(key: str) -> str:
    """Returns the name of a page within a folder: its key, where that is a plain hash."""
    plain = key.isascii() and key.isalnum()
    return key if plain else hashlib.sha256(key.encode()).hexdigest()


def _reason(error: Exception) -> str:
    """Returns the counter of an error."""
    gone = (UnavailableError, CallCancelledError, ConnectionError, TimeoutError)
    return "unavailable" if isinstance(error, gone) else "failed"
