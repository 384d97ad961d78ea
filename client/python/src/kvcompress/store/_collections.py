# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Collections of artefacts: runs of blocks, found by block, and chunks, found by their own name."""

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from kvcompress._foreign_files import ForeignFileError, open_foreign
from kvcompress.store._counters import Event, Reason
from kvcompress.store._errors import StoreError
from kvcompress.store._folder import StoreFolder
from kvcompress.store._headers import NoArtefactError, metadata_of
from kvcompress.store._layout import (
    CHUNK_NAME,
    DIGITS,
    IDENTITY,
    Entry,
    chunk_folders,
    entries_of_chunks,
    entry_of,
)
from kvcompress.store._placing import named
from kvcompress.store._pointers import place_of, pointer_of, target_of, unpoint

_READABLE = 80  # characters of a collection's name that are for people


class RunCollection:
    """Runs of blocks that depend on one identity. Thread safe.

    Attributes:
        path: The folder of the collection.
        identity: What blocks depend on other than their hashes.
    """

    def __init__(self, folder: StoreFolder, name: str, identity: Mapping[str, str]) -> None:
        """Names the folder by the identity, and writes that into it."""
        self._folder, self.identity = folder, dict(identity)
        text = json.dumps(self.identity, sort_keys=True)
        readable = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[-_READABLE:]
        self._name = f"{readable.lstrip('.')}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        self.path = os.path.join(folder.root, self._name)
        with suppress(OSError):  # where it is full or read-only; it is tried again to store
            self._describe()

    def holds(self, block: str) -> bool:
        """Returns whether there is an artefact with a block; it may turn out to be damaged."""
        artefact = self.artefact_of(block)
        found = artefact is not None and self._folder.is_there(artefact)
        self._folder.counters.count(**{"hits" if found else "misses": 1})
        return found

    def artefact_of(self, block: str) -> str | None:
        """Returns the artefact that a block's pointer leads to; None when there is none."""
        return target_of(self.path, pointer_of(self.path, block))

    def is_there(self, artefact: str) -> bool:
        """Returns whether there is an artefact; one that may not be looked at is not there."""
        return self._folder.is_there(artefact)

    def staged(self) -> AbstractContextManager[str]:
        """Returns a path for an artefact that is being written, and then added.

        Raises:
            ReadOnlyStoreError: Nothing can be written.
            OSError: Something cannot be.
        """
        return self._folder.staged()

    def add(self, staged: str, blocks: Sequence[str]) -> int:
        """Takes a finished artefact, and has its blocks lead to it.

        Returns:
            The bytes that it takes, in pages.

        Raises:
            StoreFullError: It does not fit.
            OSError: Something cannot be written. Of the artefact nothing stays.
        """
        self._describe()
        name = named(digest_of(blocks)[:DIGITS], blocks)
        return self._folder.publish(staged, place_of(self.path, name), blocks)

    def read(self, artefact: str, most_bytes: int) -> bytes:
        """Reads an artefact, which is not evicted meanwhile.

        Raises:
            FileNotFoundError: It is not there any more, or has expired.
            ForeignFileError: It is no file, or larger than that.
            OSError: It cannot be read.
        """
        return read(self._folder, artefact, most_bytes)

    def touch(self, blocks: Iterable[str]) -> None:
        """Notes that blocks are used, though they are not read: an engine has them in memory."""
        found = {self.artefact_of(block) for block in blocks}
        for artefact in found:
            if artefact is not None:
                self._folder.access.note(artefact)

    def discard(self, artefact: str, reason: Reason = "damaged") -> None:
        """Removes an artefact that is of no use, with its pointers."""
        self._folder.discard(artefact, reason)

    def hide(self, artefact: str, seconds: float) -> None:
        """Hides an artefact from this process for a while, such as where it lacks what it takes."""
        self._folder.presence.hide(artefact, seconds)

    def forget(self, blocks: Iterable[str]) -> None:
        """Removes pointers, so that their blocks are not there until they are saved again."""
        unpoint(self.path, blocks)

    def subscribe(self, subscriber: Callable[[Event], object]) -> None:
        """Calls a function with the events of this collection from now on."""

        def told(event: Event) -> None:
            if event.collection == self._name:
                subscriber(event)

        self._folder.counters.subscribe(told)

    def clear(self) -> int:
        """Removes all artefacts of the collection that nobody reads; returns how many.

        Raises:
            OSError: The folder cannot be locked.
        """
        mine = f"{self.path}{os.sep}"
        found = [each for each in self._folder.entries() if each.path.startswith(mine)]
        return len(self._folder.remove_all(found, "asked"))

    def _describe(self) -> None:
        """Writes into the folder what its artefacts depend on.

        Raises:
            OSError: It cannot be written.
        """
        described = os.path.join(self.path, IDENTITY)
        if not self._folder.read_only and not os.path.lexists(described):
            text = json.dumps(self.identity, indent=2, sort_keys=True)
            self._folder.describe(described, f"{text}\n")


@dataclass(frozen=True)
class ChunkEntry:
    """A chunk that is there.

    Attributes:
        name: As in the collection.
        bytes: What it takes, in pages.
        metadata: Of its artefact; not verified.
    """

    name: str
    bytes: int
    metadata: Mapping[str, str]


class ChunkCollection:
    """Artefacts by their own names, `XX/DIGEST.safetensors`. Thread safe."""

    def __init__(self, folder: StoreFolder) -> None:
        """Takes the folder."""
        self._folder = folder

    def exists(self, name: str) -> bool:
        """Returns whether there is a chunk."""
        found = self._folder.is_there(self._path(name))
        self._folder.counters.count(**{"hits" if found else "misses": 1})
        return found

    def read(self, name: str, most_bytes: int) -> bytes:
        """Reads a chunk, which is not evicted meanwhile.

        Raises:
            FileNotFoundError: It is not there.
            ForeignFileError: It is no file, or larger than that.
            OSError: It cannot be read.
        """
        return read(self._folder, self._path(name), most_bytes)

    def write(self, name: str, data: bytes) -> int:
        """Writes a chunk, in the place of whatever has the name, links included.

        Returns:
            The bytes that it takes, in pages.

        Raises:
            StoreFullError: It does not fit.
            OSError: It cannot be written; what was there stays.
        """
        with self._folder.staged() as staged:
            descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            return self._folder.publish(staged, self._path(name))

    def remove(self, names: Iterable[str], reason: Reason = "asked") -> list[str]:
        """Removes chunks that nobody reads; returns those that are gone now.

        Raises:
            OSError: The folder cannot be locked.
        """
        paths = {self._path(name): name for name in names}
        found: list[Entry] = []
        for path in paths:
            with suppress(OSError):
                found.append(entry_of(path, os.lstat(path)))
        removed = self._folder.remove_all(found, reason) if found else []
        return [paths[each.entry.path] for each in removed]

    def discard(self, name: str, reason: Reason = "damaged") -> None:
        """Removes a chunk that is of no use, without waiting for anybody."""
        self._folder.discard(self._path(name), reason)

    def pin(self, names: Iterable[str]) -> None:
        """Keeps chunks from being evicted by this process, until they are unpinned as often."""
        self._folder.presence.pin([self._path(name) for name in names])

    def unpin(self, names: Iterable[str]) -> None:
        """Ends what `pin` began."""
        self._folder.presence.unpin([self._path(name) for name in names])

    def list(self, after: str = "") -> Iterator[ChunkEntry]:
        """Yields the chunks whose names sort behind one, in their order."""
        for folder in sorted(chunk_folders(self._folder.root)):
            prefix = os.path.basename(folder)
            if prefix < after[: len(prefix)]:
                continue
            for entry in sorted(entries_of_chunks(folder), key=lambda each: each.path):
                name = f"{prefix}/{os.path.basename(entry.path)}"
                if name > after:
                    with suppress(OSError, NoArtefactError):
                        yield ChunkEntry(name, entry.bytes, metadata_of(entry.path))

    def _path(self, name: str) -> str:
        """Returns the path of a chunk.

        Raises:
            StoreError: Its name is none.
        """
        prefix, _, rest = name.partition("/")
        if prefix != os.path.basename(prefix) or not CHUNK_NAME.fullmatch(rest):
            raise StoreError(f"{name!r} is no name of a chunk, which is XX/DIGEST.safetensors")
        return os.path.join(self._folder.root, prefix, rest)


def read(folder: StoreFolder, path: str, most_bytes: int) -> bytes:
    """Reads an artefact; a lock on it keeps other processes from evicting it.

    Raises:
        FileNotFoundError: It is not there, or not to be used.
        ForeignFileError: It is no file, or larger than that.
        OSError: It cannot be read.
    """
    if folder.is_gone(path):
        raise FileNotFoundError(errno.ENOENT, "the artefact is not there any more", path)
    with open_foreign(path, most_bytes) as file:
        with suppress(OSError):  # it is being removed: what is open stays whole
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
        data = file.read(os.fstat(file.fileno()).st_size)
    if len(data) > most_bytes:
        raise ForeignFileError(f"{path!r} has grown to {len(data)} bytes; {most_bytes} are allowed")
    folder.access.note(path)
    folder.counters.count(read=1)
    return data


def digest_of(blocks: Iterable[str]) -> str:
    """Returns the identity of a run of blocks."""
    return hashlib.sha256(",".join(blocks).encode()).hexdigest()
