# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The folder of a store as one process uses it: publishes, removes, counts and keeps the bound."""

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from kvcompress.store import _checks
from kvcompress.store._access import AccessTimes
from kvcompress.store._accounts import Accounts
from kvcompress.store._counters import Counters, Event, Reason
from kvcompress.store._errors import (
    ReadOnlyStoreError,
    StoreBusyError,
    StoreFullError,
)
from kvcompress.store._layout import (
    CONTROL,
    Entry,
    collection_of,
    entries,
    entry_of,
    footprint,
    is_run,
)
from kvcompress.store._ledger import Account
from kvcompress.store._lock import FolderLock
from kvcompress.store._options import StoreOptions
from kvcompress.store._placing import lead, place, replace
from kvcompress.store._presence import Presence
from kvcompress.store._removal import Removed, evict, remove
from kvcompress.store._staging import Staging, remove_abandoned
from kvcompress.store._sweep import Sweeper, Swept

_SWEEP_SECONDS = 86400.0
_EVERYTHING = 1 << 62  # bytes
_RELIEF = 0.05  # of what is there, removed where the disk is full


class StoreFolder:
    """What a process knows and does of a folder. Thread safe.

    Attributes:
        root: The folder.
        read_only: Whether it cannot be written.
        counters: What was done.
        access: When artefacts were read.
        presence: Which artefacts this process sees, and which it needs to stay.
    """

    def __init__(self, root: str, options: StoreOptions, *, visit: bool = False) -> None:
        """Makes the folder, tries what it allows, and brings it below its bound.

        Args:
            root: The folder.
            options: The bound.
            visit: Leaves the folder as it is, with the bound that others have given it.

        Raises:
            StoreError: It cannot be used, or on a visit is not there.
        """
        self.root, self.options = root, options
        control = os.path.join(root, CONTROL)
        self._writers = os.path.join(control, "writers")
        self._lock = FolderLock(os.path.join(control, "lock"))
        self._accounts = Accounts(root, os.path.join(control, "ledger.json"), self.now)
        self._staging = Staging(self._writers)
        self._ahead = 0.0
        self.counters, self.access = Counters(), AccessTimes(self.now)
        self.presence = Presence()
        self._next_expiry = 0.0
        if visit:
            self.read_only = not _checks.visit_folder(root)
        else:
            self.read_only = not _checks.make_folder(root, self._writers)
        self._capacity = options.capacity(root)
        if not self.read_only and not visit:
            self._ahead = _checks.probe(root, self._staging)
            self._start()

    def now(self) -> float:
        """Returns the time by the clock of the file system."""
        return time.time() + self._ahead

    @property
    def capacity(self) -> int:
        """The bound in bytes, which follows the size of the file system."""
        with suppress(OSError):
            self._capacity = self.options.capacity(self.root)
        return self._capacity

    def close(self) -> None:
        """Writes down what was read, and removes what is not finished."""
        if not self.read_only:
            self.access.write()
        self._staging.close()

    # What is there.

    def is_there(self, path: str) -> bool:
        """Returns whether there is an artefact that may be used."""
        try:
            found = os.stat(path, follow_symlinks=False)
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and not self._is_out(path, found)

    def is_gone(self, path: str) -> bool:
        """Returns whether something that is there may not be used: it has expired, or is bad."""
        try:
            return self._is_out(path, os.stat(path, follow_symlinks=False))
        except OSError:
            return True

    def entries(self) -> Iterator[Entry]:
        """Lists all artefacts."""
        return entries(self.root)

    def account(self) -> Account:
        """Returns what is known of the folder, or lists it where nothing is."""
        return self._accounts.read()

    def _is_out(self, path: str, found: os.stat_result) -> bool:
        """Returns whether an artefact has expired, or is of no use and could not be removed."""
        ttl = self.options.ttl
        if self.presence.hides(path):
            return True
        return ttl is not None and self.now() - found.st_mtime >= ttl

    # What changes it.

    @contextmanager
    def staged(self) -> Iterator[str]:
        """Yields a path for an artefact that is being written, and then published.

        Raises:
            ReadOnlyStoreError: Nothing can be written.
            OSError: Something cannot be. Where the disk is full, some artefacts go.
        """
        if self.read_only:
            self.counters.failed("read-only")
            raise ReadOnlyStoreError(
                errno.EROFS,
                "artefacts are read here, and none are stored: give this process's user the "
                "right to write",
                self.root,
            )
        try:
            with self._staging.file() as path:
                yield path
        except OSError as error:
            if _checks.is_full(error) and not isinstance(error, StoreFullError):
                self.counters.failed("disk full")
                self.relieve()
            raise

    def publish(self, staged: str, target: str, blocks: Sequence[str] = ()) -> int:
        """Publishes a finished artefact and the pointers of its blocks; evicts others for it.

        Returns:
            The bytes that it takes, in pages.

        Raises:
            StoreFullError: It does not fit.
            StoreBusyError: Another process has the folder's lock for too long.
            OSError: Something cannot be written. Of the artefact nothing stays.
        """
        size = footprint(target, os.stat(staged).st_size)
        limit = int(self.capacity * self.options.high_watermark)
        if size > limit:
            self.counters.failed("full")
            raise StoreFullError(
                errno.ENOSPC,
                f"an artefact of {size} bytes does not fit into the {limit} that the store may "
                "hold: raise capacity_bytes, or make artefacts of fewer tokens",
                self.root,
            )
        self._sweep_daily()
        removed: list[Removed] = []
        try:
            with self._lock.held():
                self._publish(staged, target, blocks, size, limit, removed)
        except OSError as error:
            self._count_failure(error)
            raise
        finally:
            self._tell(removed)
        self.presence.show(target)
        name = os.path.basename(collection_of(target)) if is_run(target) else ""
        path = os.path.relpath(target, self.root)
        self.counters.stored(Event("stored", name, path, tuple(blocks), size))
        return size

    def replace(
        self, entry: Entry, staged: str, blocks: Sequence[str], times: tuple[int, int]
    ) -> int:
        """Puts a smaller artefact of the same content into the place of one that is there.

        Args:
            entry: The one that is there.
            staged: The smaller one.
            blocks: Of a run; none of a chunk.
            times: When it was last used and written, in nanoseconds.

        Returns:
            The bytes that it takes, in pages; 0 where the other one stays, as it is not larger,
            or has changed.

        Raises:
            OSError: The folder cannot be locked or written. The other one stays.
        """
        with self._lock.held():
            target, size, removed = replace(
                self._accounts, self._staging, entry, staged, blocks, times
            )
        self._tell(removed)
        self.presence.show(target)
        return size

    def discard(self, path: str, reason: Reason) -> None:
        """Removes an artefact that is of no use, without waiting for anybody.

        The ledger stays too high until the folder is listed. Where the artefact cannot be
        removed, this process does not see it any more.
        """
        self.presence.hide(path)
        self.access.forget(path)
        if self.read_only:
            return
        with suppress(OSError):
            removed = remove(entry_of(path, os.lstat(path)), reason)
            if removed is not None:
                self._tell([removed])
                self.presence.show(path)

    def remove_all(self, found: Iterable[Entry], reason: Reason) -> list[Removed]:
        """Removes artefacts that nobody reads, and counts them off.

        Raises:
            OSError: The folder cannot be locked.
        """
        with self._lock.held():
            account = self.account()
            removed = list(evict(found, _EVERYTHING, reason, self.presence.pins))
            self._accounts.count_off(account, removed)
        self._tell(removed)
        return removed

    def evict_to(self, most: int, reason: Reason = "asked") -> list[Removed]:
        """Removes artefacts, those not used for longest first, until so many bytes are left.

        Raises:
            OSError: The folder cannot be locked.
        """
        with self._lock.held():
            removed = self._evict(self.account(), most, reason)
        self._tell(removed)
        return removed

    def relieve(self) -> None:
        """Frees some space on a disk that is full."""
        with suppress(OSError):
            self.evict_to(int(self.account().bytes * (1 - _RELIEF)), "disk full")

    def sweep(self) -> Swept:
        """Removes what crashes and other programs have left; see _sweep.

        Raises:
            OSError: The folder cannot be locked.
        """
        with self._lock.held():
            account = self.account()
            account.swept = self.now()  # first, so that no other process does the same
            self._accounts.write(account)
        swept = Swept(partials=remove_abandoned(self._writers))
        for step in Sweeper(self.root, self._staging, swept).steps():
            with self._lock.held():
                step()
        with self._lock.held():
            self._accounts.count_off(self._accounts.read(), swept.removed)
            self._accounts.recount()
        self._tell(swept.removed)
        return swept

    def describe(self, path: str, text: str) -> None:
        """Writes a small file into a collection, whole.

        Raises:
            OSError: It cannot be written.
        """
        with self._staging.file() as unfinished:
            with open(unfinished, "x", encoding="utf-8") as file:
                file.write(text)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.replace(unfinished, path)

    # Under the lock.

    def _start(self) -> None:
        """Removes what is left, and what is above the bound. A lock that is busy is left alone."""
        remove_abandoned(self._writers)
        with suppress(StoreBusyError), self._lock.held():
            account = self._accounts.fresh()
            removed: list[Removed] = []
            if account.bytes > self.capacity:
                removed = self._evict(account, self._low())
            account.capacity = self.capacity
            self._accounts.write(account)
            self._tell(removed)

    def _sweep_daily(self) -> None:
        """Sweeps once a day, whichever process is the first to store something."""
        account = self._accounts.known()
        if account is not None and abs(self.now() - account.swept) < _SWEEP_SECONDS:
            return
        with suppress(StoreBusyError):
            self.sweep()

    def _publish(
        self,
        staged: str,
        target: str,
        blocks: Sequence[str],
        size: int,
        limit: int,
        removed: list[Removed],
    ) -> None:
        """Publishes an artefact that fits by itself."""
        account = self._accounts.fresh()
        removed += self._expire(account)
        if account.bytes + size > limit:
            removed += self._evict(account, min(self._low(), limit - size))
            if account.bytes + size > limit:
                raise StoreFullError(
                    errno.ENOSPC,
                    f"{account.bytes} of {limit} bytes are in use, and all that could go is being "
                    "read: raise capacity_bytes",
                    self.root,
                )
        replaced = 0
        with suppress(FileNotFoundError):
            replaced = entry_of(target, os.lstat(target)).bytes
        account.capacity = self.capacity
        self._accounts.add(account, size)
        try:
            now = int(self.now() * 1e9)
            place(self.root, staged, target, (now, now))
            earlier = lead(self._staging, target, blocks)
        except BaseException:
            self._accounts.add(account, -size, -1)
            raise
        if replaced:
            self._accounts.add(account, -replaced, -1)
        removed += earlier
        self._accounts.count_off(account, earlier)

    def _expire(self, account: Account) -> list[Removed]:
        """Removes what has expired, now and then."""
        ttl = self.options.ttl
        if ttl is None or time.monotonic() < self._next_expiry:
            return []
        self._next_expiry = time.monotonic() + max(1.0, ttl / 20)
        old = (each for each in self.entries() if self.now() - each.written >= ttl)
        expired = list(evict(old, _EVERYTHING, "expired", self.presence.pins))
        self._accounts.count_off(account, expired)
        return expired

    def _evict(self, account: Account, most: int, reason: Reason = "capacity") -> list[Removed]:
        """Lists the folder, and removes what was not used for longest."""
        self.access.write()
        found = sorted(self.entries(), key=lambda entry: entry.used)
        self._accounts.counted(found, account)
        removed = list(evict(found, account.bytes - most, reason, self.presence.pins))
        self._accounts.count_off(account, removed)
        return removed

    def _count_failure(self, error: OSError) -> None:
        """Counts an artefact that is not published; that of a full disk is counted elsewhere."""
        if isinstance(error, StoreFullError):
            self.counters.failed("full")
        elif isinstance(error, StoreBusyError):
            self.counters.failed("locked")
        elif not _checks.is_full(error):
            self.counters.failed("other")

    def _low(self) -> int:
        """Returns the bytes that are left by an eviction."""
        return int(self.capacity * self.options.low_watermark)

    def _tell(self, removed: Iterable[Removed]) -> None:
        """Counts what is gone, and notifies subscribers."""
        for each in removed:
            self.access.forget(each.entry.path)
            self.counters.removed(each.event(self.root))
