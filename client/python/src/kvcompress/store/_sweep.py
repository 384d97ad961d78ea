# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Looks for what crashes and other programs have left in a folder.

| found | done |
| --- | --- |
| a file that is no artefact, under the name of one | removed |
| an artefact that no pointer leads to, of blocks that are elsewhere | removed |
| an artefact without some of its pointers | the pointers are made |
| an artefact of a run that has a later one | removed, when the pointers lead to the later one |
| a pointer that leads nowhere | removed |
| an unfinished file of an earlier version | removed, where no process has it open |

A step looks at one folder, under the lock of the store, so that others wait for a step alone.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kvcompress._output_file import remove_abandoned
from kvcompress.store._counters import Reason
from kvcompress.store._headers import NoArtefactError, blocks_of, metadata_of
from kvcompress.store._layout import (
    ARTEFACTS,
    CHUNK_NAME,
    DIGITS,
    RUN_NAME,
    chunk_folders,
    collections,
    entry_of,
    files,
    prefixes,
)
from kvcompress.store._pointers import (
    block_folders,
    may_be_pointer,
    point,
    pointer_of,
    target_of,
)
from kvcompress.store._removal import Removed, remove
from kvcompress.store._staging import Staging

_PARTIAL = ".kvcompress-partial"
_GRACE_SECONDS = 60.0  # in which writers of earlier versions finish what they have begun


@dataclass
class Swept:
    """What was found and done.

    Attributes:
        partials: Unfinished files that were removed.
        removed: Artefacts that were removed: damaged ones, and those that nothing led to.
        pointers: Pointers that led nowhere, and were removed.
        adopted: Pointers that were missing, and were made.
    """

    partials: int = 0
    removed: list[Removed] = field(default_factory=list)
    pointers: int = 0
    adopted: int = 0


class Sweeper:
    """Goes through a folder once."""

    def __init__(self, root: str, staging: Staging, swept: Swept) -> None:
        """Takes the folder, where pointers are made, and what to note findings in."""
        self._root, self._staging, self._swept = root, staging, swept

    def steps(self) -> Iterator[Callable[[], None]]:
        """Yields what to do, each under the lock of the store."""
        for collection in collections(self._root):
            for folder in prefixes(collection, ARTEFACTS):
                yield partial(self._runs, collection, folder)
            for folder in block_folders(collection):
                yield partial(self._pointers, collection, folder)
        for folder in chunk_folders(self._root):
            yield partial(self._chunks, folder)

    def _runs(self, collection: str, folder: str) -> None:
        """Looks at the artefacts of runs in a folder."""
        self._partials(folder)
        same: dict[str, dict[str, tuple[str, ...]]] = {}  # by digest and path
        for entry in files(folder):
            if not RUN_NAME.fullmatch(entry.name):
                continue
            with suppress(OSError):
                try:
                    blocks = blocks_of(entry.path)
                except NoArtefactError:
                    self._remove_old(entry.path, "damaged")
                    continue
                same.setdefault(entry.name[:DIGITS], {})[entry.path] = blocks
        for paths in same.values():
            with suppress(OSError):
                [*earlier, last] = sorted(paths, key=_age_and_size)
                self._check_run(collection, last, paths[last], earlier)

    def _check_run(
        self, collection: str, path: str, blocks: tuple[str, ...], earlier: list[str]
    ) -> None:
        """Points blocks to an artefact, or removes it where none has to.

        Those of earlier artefacts of the same run lead to it as well: who wrote it has died before
        the last of them did.
        """
        targets = {block: target_of(collection, pointer_of(collection, block)) for block in blocks}
        missing = [
            block
            for block, to in targets.items()
            if to is None or to in earlier or not os.path.exists(to)
        ]
        with self._staging.file() as unfinished:
            for block in missing:
                point(unfinished, collection, block, os.path.basename(path))
                self._swept.adopted += 1
        for each in earlier:
            self._remove(each, "replaced")
        if path not in targets.values() and not missing:
            self._remove(path, "orphan")

    def _pointers(self, collection: str, folder: str) -> None:
        """Looks at the pointers in a folder."""
        for entry in files(folder):
            with suppress(OSError):
                if not may_be_pointer(entry):
                    continue
                if entry.name.startswith("."):
                    # Of an earlier version, which gave them their names next to each other.
                    if _is_old(entry.stat(follow_symlinks=False)):
                        os.unlink(entry.path)
                        self._swept.partials += 1
                    continue
                target = target_of(collection, entry.path)
                if target is None or not os.path.exists(target):
                    os.unlink(entry.path)
                    self._swept.pointers += 1

    def _chunks(self, folder: str) -> None:
        """Looks at the chunks in a folder."""
        self._partials(folder)
        for entry in files(folder):
            if CHUNK_NAME.fullmatch(entry.name):
                with suppress(OSError):
                    try:
                        metadata_of(entry.path)
                    except NoArtefactError:
                        self._remove_old(entry.path, "damaged")

    def _partials(self, folder: str) -> None:
        """Removes unfinished files that nobody has open."""
        before = _count_partials(folder)
        if before:
            remove_abandoned(Path(folder))
            self._swept.partials += before - _count_partials(folder)

    def _remove_old(self, path: str, reason: Reason) -> None:
        """Removes an artefact, unless it has only just appeared."""
        if _is_old(os.lstat(path)):
            self._remove(path, reason)

    def _remove(self, path: str, reason: Reason) -> None:
        """Removes an artefact, unless somebody reads it."""
        removed = remove(entry_of(path, os.lstat(path)), reason)
        if removed is not None:
            self._swept.removed.append(removed)


def _age_and_size(path: str) -> tuple[float, int]:
    """Sorts artefacts of a run: the last written comes last, of those of one time the smallest.

    Raises:
        OSError: It is gone.
    """
    found = os.stat(path)
    return found.st_mtime, -found.st_size


def _is_old(found: os.stat_result) -> bool:
    """Returns whether nobody can be at work on a file any more."""
    return time.time() - found.st_mtime > _GRACE_SECONDS


def _count_partials(folder: str) -> int:
    """Returns the number of unfinished files in a folder."""
    return sum(entry.name.endswith(_PARTIAL) for entry in files(folder))
