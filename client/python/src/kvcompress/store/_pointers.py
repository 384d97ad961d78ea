# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Pointers from blocks to artefacts: small files under the blocks' hashes.

Each appears and disappears by itself, whole, on every file system and without a lock; one that
leads nowhere is a block that is not there. Symbolic links, which pointers were in earlier versions,
are read, and are not written: some file systems have none.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from kvcompress._foreign_files import ForeignFileError, read_foreign
from kvcompress.store._layout import ARTEFACTS, BLOCKS, RUN_NAME, prefixes

_MOST_BYTES = 256


def place_of(collection: str, name: str) -> str:
    """Returns the path of an artefact."""
    return os.path.join(collection, ARTEFACTS, name[:2], name)


def pointer_of(collection: str, block: str) -> str:
    """Returns the path of a block's pointer."""
    return os.path.join(collection, BLOCKS, block[:3], block)


def target_of(collection: str, pointer: str) -> str | None:
    """Returns the artefact that a pointer leads to; None for no pointer, or none of ours."""
    try:
        name = read_foreign(pointer, _MOST_BYTES).decode("ascii", "replace")
    except ForeignFileError:
        name = _linked(pointer)
    except OSError:
        return None
    return place_of(collection, name) if RUN_NAME.fullmatch(name) else None


def point(unfinished: str, collection: str, block: str, name: str) -> None:
    """Points a block to an artefact.

    It is not flushed to the disk: one that a crash empties leads nowhere.

    Args:
        unfinished: A path on the same file system, which is free before and afterwards.
        collection: The folder of the collection.
        block: The hash.
        name: Of the artefact.

    Raises:
        OSError: It cannot be written.
    """
    pointer = pointer_of(collection, block)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        os.write(descriptor, name.encode())
    finally:
        os.close(descriptor)
    try:
        os.replace(unfinished, pointer)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(pointer), exist_ok=True)
        os.replace(unfinished, pointer)


def unpoint(collection: str, blocks: Iterable[str], artefact: str | None = None) -> tuple[str, ...]:
    """Removes pointers; with an artefact, only those that lead to it. Returns their blocks."""
    gone = []
    for block in blocks:
        pointer = pointer_of(collection, block)
        if artefact is None or target_of(collection, pointer) == artefact:
            with suppress(OSError):
                os.unlink(pointer)
                gone.append(block)
    return tuple(gone)


def may_be_pointer(entry: "os.DirEntry[str]") -> bool:
    """Returns whether a file in a folder of blocks can be a pointer, wherever it leads.

    An unfinished one of an earlier version has a dot in front, and more behind the hash.

    Raises:
        OSError: It cannot be looked at.
    """
    folder = os.path.basename(os.path.dirname(entry.path))
    name = entry.name.removeprefix(".").partition("-")[0]
    if not (name.isascii() and name.isalnum() and name[:3] == folder):
        return False
    return entry.is_symlink() or entry.stat(follow_symlinks=False).st_size <= _MOST_BYTES


def block_folders(collection: str) -> Iterator[str]:
    """Returns a collection's folders of blocks."""
    return prefixes(collection, BLOCKS)


def _linked(pointer: str) -> str:
    """Returns the name in a symbolic link; empty for anything else."""
    with suppress(OSError):
        return os.path.basename(os.readlink(pointer))
    return ""
