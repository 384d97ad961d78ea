# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Where the pages of one of SGLang's host pools are kept: a folder of artefacts, and a service."""

import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.errors import (
    CancelledError,
    DataLossError,
    KVCompressError,
    UnavailableError,
)
from kvcompress.integrations._artefact_folder import ArtefactFolder
from kvcompress.integrations._service import Service
from kvcompress.integrations._sglang_pages import HostPages
from kvcompress.integrations._sglang_parameters import Parameters
from kvcompress.options import CompressArguments

_LOG = logging.getLogger(__name__)

_COUNTERS = ("saved", "saved_bytes", "source_bytes", "loaded", "damaged", "unavailable", "failed")

Row: TypeAlias = torch.Tensor | None


class Backend:
    """What the pools of an engine share. Thread safe.

    Attributes:
        parameters: Of the configuration.
        options: Of calls.
        service: Restores and compresses.
        loaders: Threads that load.
    """

    def __init__(self, parameters: Parameters) -> None:
        """Makes threads; the service is connected to with the first call."""
        self.parameters = parameters
        self.options = parameters.options()
        profiles, threads = parameters.profile_directory, parameters.threads
        self.service = Service(parameters.server, profiles, threads=threads)
        self.loaders = ThreadPoolExecutor(parameters.threads, "kvcompress-load")
        self._lock = threading.Lock()
        self._counters = Counter(dict.fromkeys(_COUNTERS, 0))

    def count(self, **more: int) -> None:
        """Adds to counters."""
        with self._lock:
            self._counters.update(more)

    def counters(self) -> dict[str, int]:
        """Gives pages saved and loaded, bytes, and artefacts that failed."""
        with self._lock:
            return dict(self._counters)

    def close(self) -> None:
        """Ends the threads, and the server if it is the engine's own."""
        self.loaders.shutdown(wait=True, cancel_futures=True)
        self.service.close()


class PageStore:
    """The pages of a pool. Thread safe."""

    def __init__(self, backend: Backend, pages: HostPages, folder: ArtefactFolder) -> None:
        """Takes what is in a page, and where artefacts are."""
        self._backend = backend
        self.pages, self.folder = pages, folder

    def holds(self, key: str) -> bool:
        """Tells whether there is an artefact of a page."""
        return self.folder.holds(_block(key))

    def leading(self, keys: Sequence[str]) -> int:
        """Tells how many pages there are, from the first one on; none without a service."""
        if self._backend.service.paused:
            return 0
        missing = (index for index, key in enumerate(keys) if not self.holds(key))
        return next(missing, len(keys))

    def load(self, keys: Sequence[str]) -> list[Row]:
        """Gives pages, artefact by artefact, several at once."""
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
        """Gives pages of one artefact, after every check; None for all that failed."""
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
            self.folder.forget(blocks)
            self._note("damaged", f"{artefact} is not loaded, but computed", error)
            return nothing
        except (KVCompressError, OSError) as error:
            if artefact.exists():  # or else somebody has deleted it
                self._note(_reason(error), f"{artefact} is not loaded, but computed", error)
            return nothing
        self._backend.service.succeeded()
        self._backend.count(loaded=len(rows))
        return rows

    def save(self, keys: Sequence[str], row: Callable[[int], torch.Tensor]) -> list[bool]:
        """Saves pages that are not there yet, in runs; tells which there are."""
        there = [self.folder.holds(_block(key)) for key in keys]
        most = max(1, self._backend.parameters.artefact_tokens // self.pages.tokens)
        # Tokens of an artefact follow one another: a page that is there ends a run.
        runs: list[list[int]] = [[]]
        for index, is_there in enumerate(there):
            if is_there or len(runs[-1]) == most:
                runs.append([])
            if not is_there:
                runs[-1].append(index)
        for run in filter(None, runs):
            if not self._save_run([_block(keys[i]) for i in run], [row(i) for i in run]):
                break
            for index in run:
                there[index] = True
        return there

    def _save_run(self, blocks: Sequence[str], rows: Sequence[torch.Tensor]) -> bool:
        """Saves one artefact; tells whether it is there."""
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
    """Gives the name of a page within a folder: its key, where that is a plain hash."""
    plain = key.isascii() and key.isalnum()
    return key if plain else hashlib.sha256(key.encode()).hexdigest()


def _reason(error: Exception) -> str:
    """Gives the counter of an error."""
    gone = (UnavailableError, CancelledError, ConnectionError, TimeoutError)
    return "unavailable" if isinstance(error, gone) else "failed"
