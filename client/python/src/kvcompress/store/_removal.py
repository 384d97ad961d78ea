# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Removes artefacts that nobody reads, with the pointers to them; chooses which."""

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from kvcompress.store._counters import Event, Reason
from kvcompress.store._headers import NoArtefactError, blocks_of
from kvcompress.store._layout import Entry, collection_of
from kvcompress.store._pointers import unpoint


@dataclass(frozen=True, slots=True)
class Removed:
    """An artefact that is gone.

    Attributes:
        entry: What it was.
        blocks: Those that are gone with it.
        reason: Why.
    """

    entry: Entry
    blocks: tuple[str, ...]
    reason: Reason

    @property
    def in_vain(self) -> bool:
        """Whether it was stored for nobody: evicted for the capacity before it was ever read."""
        return self.reason == "capacity" and self.entry.never_read

    def event(self, root: str) -> Event:
        """Returns the event of this removal, in a store's folder."""
        path = self.entry.path
        name = os.path.basename(collection_of(path)) if self.entry.is_run else ""
        return Event(
            "removed",
            name,
            os.path.relpath(path, root),
            self.blocks,
            self.entry.bytes,
            self.reason,
            self.in_vain,
        )


def remove(entry: Entry, reason: Reason) -> Removed | None:
    """Removes an artefact, then its pointers; None where it stays, as somebody reads it.

    Raises:
        OSError: It cannot be removed.
    """
    descriptor = _open(entry.path)
    if descriptor is None:
        # No regular file, or not to be opened: nothing that anybody reads.
        os.unlink(entry.path)
        return Removed(entry, (), reason)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    try:
        blocks: tuple[str, ...] = ()
        if entry.is_run:
            with suppress(NoArtefactError, OSError):
                blocks = blocks_of(entry.path)
        os.unlink(entry.path)
    finally:
        os.close(descriptor)
    return Removed(entry, unpoint(collection_of(entry.path), blocks, entry.path), reason)


def evict(
    entries: Iterable[Entry], surplus: int, reason: Reason, is_pinned: Callable[[str], bool]
) -> Iterator[Removed]:
    """Removes artefacts until so many bytes are free, in the order in which they are given."""
    for entry in entries:
        if surplus <= 0:
            return
        if is_pinned(entry.path):
            continue
        with suppress(OSError):
            removed = remove(entry, reason)
            if removed is not None:
                surplus -= entry.bytes
                yield removed


def _open(path: str) -> int | None:
    """Opens an artefact for its lock, which some network file systems give to writers alone."""
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for access in (os.O_RDWR, os.O_RDONLY):
        try:
            return os.open(path, access | flags)
        except FileNotFoundError:
            raise
        except OSError:
            continue
    return None
