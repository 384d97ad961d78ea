# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The store of a folder."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from kvcompress._client import Client
from kvcompress.store._collections import ChunkCollection, RunCollection
from kvcompress.store._counters import Event, StoreStats
from kvcompress.store._demotion import Demoter, Demotion
from kvcompress.store._folder import StoreFolder
from kvcompress.store._layout import Entry
from kvcompress.store._ledger import Account
from kvcompress.store._options import StoreOptions
from kvcompress.store._removal import Removed
from kvcompress.store._sweep import Swept


class ArtefactStore:
    """Artefacts in a folder that has a bound, which processes and machines may share. Thread safe.

    The bound holds for all of them together: what is published never exceeds the capacity, and each
    writer has at most one unfinished artefact for each of its threads in addition. Reads and
    look-ups wait for nobody. A read returns what was stored, whole, or nothing; whether it is what
    the artefact says is for the service to verify.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with ArtefactStore(folder, StoreOptions(capacity_bytes=10**6)) as store:
        ...         runs = store.runs("model", {"model": "org/model", "dtype": "bfloat16"})
        ...         runs.holds("5f3c")
        False
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        options: StoreOptions | Mapping[str, Any] | None = None,
    ) -> None:
        """Makes the folder, tries what it allows, and brings it below its bound.

        A folder that cannot be written is read; `read_only` says so.

        Args:
            folder: For artefacts alone. What is of no known name there stays, and is not counted.
            options: The bound and more, or a mapping with the names of its fields.

        Raises:
            StoreError: The folder cannot be used. The message says why, and what to do.
            TypeError: There is no option of a name, or one has another type.
            ValueError: An option is out of its range.
        """
        if not isinstance(options, StoreOptions):
            options = StoreOptions.parse(options or {})
        self._folder = StoreFolder(os.path.abspath(folder), options)

    @classmethod
    def visit(cls, folder: str | os.PathLike[str]) -> Self:
        """Opens a folder that is there, without a bound of its own: nothing changes by itself.

        Raises:
            StoreError: There is none.
        """
        store = cls.__new__(cls)
        everything = StoreOptions(capacity_fraction=1.0)
        store._folder = StoreFolder(os.path.abspath(folder), everything, visit=True)
        return store

    def __enter__(self) -> Self:
        """Returns the store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the store."""
        self.close()

    @property
    def path(self) -> str:
        """The folder."""
        return self._folder.root

    @property
    def read_only(self) -> bool:
        """Whether the folder cannot be written."""
        return self._folder.read_only

    @property
    def capacity_bytes(self) -> int:
        """The bound."""
        return self._folder.capacity

    def runs(self, name: str, identity: Mapping[str, str]) -> RunCollection:
        """Returns the collection of runs of blocks that depend on an identity.

        Args:
            name: For people; part of the name of its folder.
            identity: What blocks depend on other than their hashes. Another one is another folder.
        """
        return RunCollection(self._folder, name, identity)

    def chunks(self) -> ChunkCollection:
        """Returns the artefacts that are found by their own names."""
        return ChunkCollection(self._folder)

    def subscribe(self, subscriber: Callable[[Event], object]) -> None:
        """Calls a function with what this process stores and removes, on the thread that does.

        It may be called by several threads at once.
        """
        self._folder.counters.subscribe(subscriber)

    def stats(self) -> StoreStats:
        """Returns what the folder holds and what this process did, without listing the folder."""
        account = self._folder.account()
        return self._folder.counters.stats(self._folder.capacity, account.bytes, account.artefacts)

    def account(self) -> Account:
        """Returns what the folder's ledger says, or a listing where there is none."""
        return self._folder.account()

    def entries(self) -> Iterator[Entry]:
        """Lists all artefacts."""
        return self._folder.entries()

    def now(self) -> float:
        """Returns the time by the clock of the file system, in seconds since the epoch."""
        return self._folder.now()

    def discard(self, path: str) -> None:
        """Removes an artefact that is damaged, with its pointers."""
        self._folder.discard(path, "damaged")

    def evict_to(self, most_bytes: int) -> list[Removed]:
        """Removes artefacts, those not used for longest first, until so many bytes are left.

        Raises:
            OSError: The folder cannot be locked or written.
        """
        return self._folder.evict_to(most_bytes)

    def prune(self, seconds: float) -> list[Removed]:
        """Removes artefacts that were not used for so many seconds.

        Raises:
            OSError: The folder cannot be locked or written.
        """
        self._folder.access.write()
        before = self._folder.now() - seconds
        old = [entry for entry in self.entries() if entry.used < before]
        return self._folder.remove_all(old, "expired")

    def sweep(self) -> Swept:
        """Removes what crashes and other programs have left. A store does it once a day by itself.

        Raises:
            OSError: The folder cannot be locked or written.
        """
        return self._folder.sweep()

    def demoter(self, client: Client, demotion: Demotion) -> Demoter:
        """Returns a Demoter, which recompresses artefacts that were not used for long.

        Args:
            client: Restores and compresses; of a server that sees the folder at the same path.
            demotion: What to make of artefacts, and of which.
        """
        return Demoter(self._folder, client, demotion)

    def close(self) -> None:
        """Writes down when artefacts were read, and removes what is unfinished."""
        self._folder.close()
