# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Where things are in a store's folder, and how they are listed.

    FOLDER/
      .store/                      the store's own: lock, ledger.json, writers/
      NAME-DIGEST/                 a collection of runs: artefacts that hold several blocks
        identity.json
        artefacts/XX/DIGEST-RANDOM-BLOCKS.kvc.safetensors
        blocks/XXX/HASH            a pointer: the name of the artefact with this block
      XX/DIGEST.safetensors        a chunk: an artefact that is found by its own name

What has another name is nobody's of ours: it is not counted and never removed.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

CONTROL = ".store"
ARTEFACTS, BLOCKS, IDENTITY = "artefacts", "blocks", "identity.json"
PAGE_BYTES = 4096  # what file systems allot; a pointer takes one
DIGITS = 40  # of a run's name: those of the digest of its blocks

# Without the number of blocks: those of earlier versions.
RUN_NAME = re.compile(rf"[0-9a-f]{{{DIGITS}}}-[0-9a-f]{{8}}(?:-([0-9]{{1,6}}))?\.kvc\.safetensors")
CHUNK_NAME = re.compile(rf"[0-9a-f]{{{DIGITS}}}\.safetensors")
_PREFIX = re.compile(r"[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Entry:
    """An artefact in the folder.

    Attributes:
        path: Where it is.
        bytes: What it takes, in pages, with the pointers to it.
        used: When it was last read, or else written, in seconds since the epoch.
        written: When it was written.
    """

    path: str
    bytes: int
    used: float
    written: float

    @property
    def never_read(self) -> bool:
        """Whether nobody has read it since it was written."""
        return self.used <= self.written

    @property
    def is_run(self) -> bool:
        """Whether pointers lead to it."""
        return is_run(self.path)


def is_run(path: str) -> bool:
    """Returns whether an artefact is a run, from its name."""
    return path.endswith(".kvc.safetensors")


def collection_of(path: str) -> str:
    """Returns the folder of the collection that a run is in."""
    return os.path.dirname(os.path.dirname(os.path.dirname(path)))


def footprint(path: str, size: int) -> int:
    """Returns the bytes that an artefact takes, from its name and its size."""
    pages = -(-size // PAGE_BYTES)
    named = RUN_NAME.fullmatch(os.path.basename(path))
    return (pages + (int(named[1] or 1) if named else 0)) * PAGE_BYTES


def entry_of(path: str, found: os.stat_result) -> Entry:
    """Describes an artefact."""
    written = found.st_mtime
    size = footprint(path, found.st_size)
    return Entry(path, size, max(found.st_atime, written), written)


def collections(root: str) -> Iterator[str]:
    """Yields the folders of collections; a folder that is gone has none.

    Without artefacts it is one by its identity: pointers may be left.
    """
    for entry in _folders(root):
        described = os.path.isfile(os.path.join(entry.path, IDENTITY))
        if entry.name != CONTROL and (described or _is_folder(os.path.join(entry.path, ARTEFACTS))):
            yield entry.path


def is_store(root: str) -> bool:
    """Returns whether a folder has been a store's, or has artefacts of earlier versions."""
    if os.path.isdir(os.path.join(root, CONTROL)):
        return True
    return any(True for _ in collections(root)) or any(True for _ in entries(root))


def entries(root: str) -> Iterator[Entry]:
    """Yields all artefacts of a store; what disappears meanwhile is not among them."""
    for collection in collections(root):
        for prefix in _folders(os.path.join(collection, ARTEFACTS)):
            yield from _entries(prefix.path, RUN_NAME)
    for folder in chunk_folders(root):
        yield from entries_of_chunks(folder)


def entries_of_chunks(folder: str) -> Iterator[Entry]:
    """Returns the chunks in one of their folders."""
    return _entries(folder, CHUNK_NAME)


def chunk_folders(root: str) -> Iterator[str]:
    """Yields the folders of a store's chunks."""
    for prefix in _folders(root):
        if _PREFIX.fullmatch(prefix.name):
            yield prefix.path


def prefixes(collection: str, kind: str) -> Iterator[str]:
    """Yields the folders of a collection's artefacts or blocks."""
    for entry in _folders(os.path.join(collection, kind)):
        yield entry.path


def files(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yields what is in a folder and is no folder."""
    with suppress(OSError), os.scandir(folder) as found:
        yield from (entry for entry in found if not entry.is_dir(follow_symlinks=False))


def _entries(folder: str, name: "re.Pattern[str]") -> Iterator[Entry]:
    """Yields the artefacts in a folder."""
    for entry in files(folder):
        if name.fullmatch(entry.name):
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    yield entry_of(entry.path, entry.stat(follow_symlinks=False))


def _folders(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yields the folders in a folder, without links."""
    with suppress(OSError), os.scandir(folder) as found:
        yield from (entry for entry in found if entry.is_dir(follow_symlinks=False))


def _is_folder(path: str) -> bool:
    """Returns whether there is a folder, which is no link."""
    return os.path.isdir(path) and not os.path.islink(path)
