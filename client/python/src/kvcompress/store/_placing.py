# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Moves a finished artefact to its place, and points its blocks to it.

All of it happens under the lock of the store.
"""

import errno
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress

from kvcompress.store._accounts import Accounts
from kvcompress.store._errors import StoreError
from kvcompress.store._layout import Entry, collection_of, entry_of, footprint
from kvcompress.store._pointers import point, pointer_of, target_of, unpoint
from kvcompress.store._removal import Removed, remove
from kvcompress.store._staging import Staging


def named(digest: str, blocks: Sequence[str]) -> str:
    """Returns a name that no artefact has, of a run of blocks with this digest."""
    return f"{digest}-{secrets.token_hex(4)}-{len(blocks)}.kvc.safetensors"


def place(root: str, staged: str, target: str, times: tuple[int, int]) -> None:
    """Renames an artefact to its place.

    Args:
        root: The folder of the store.
        staged: The artefact.
        target: Where it goes.
        times: When it was used and written, in nanoseconds; the same where it was never read.

    Raises:
        StoreError: That is on another file system.
        OSError: It cannot be renamed.
    """
    os.utime(staged, ns=times)
    try:
        try:
            os.replace(staged, target)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.replace(staged, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        raise StoreError(
            f"{os.path.dirname(target)!r} is on another file system than {root!r}: keep a store on "
            "one, as artefacts appear by renaming"
        ) from error


def lead(staging: Staging, target: str, blocks: Sequence[str]) -> list[Removed]:
    """Points blocks to an artefact; removes those of the same run that no block points to now.

    Raises:
        OSError: A pointer cannot be written. The artefact is gone, and what led to it.
    """
    if not blocks:
        return []
    collection, name = collection_of(target), os.path.basename(target)
    earlier = {target_of(collection, pointer_of(collection, block)) for block in blocks}
    pointed = []
    try:
        with staging.file() as unfinished:
            for block in blocks:
                point(unfinished, collection, block, name)
                pointed.append(block)
    except BaseException:
        # Without pointers nobody would find it, nor the space that it takes.
        with suppress(OSError):
            os.unlink(target)
        unpoint(collection, pointed, target)
        raise
    removed = []
    for path in earlier:
        if path is not None and path != target and _digest(path) == _digest(target):
            with suppress(OSError):
                removed.append(remove(entry_of(path, os.lstat(path)), "replaced"))
    return [each for each in removed if each is not None]


def replace(
    accounts: Accounts,
    staging: Staging,
    entry: Entry,
    staged: str,
    blocks: Sequence[str],
    times: tuple[int, int],
) -> tuple[str, int, list[Removed]]:
    """Puts a smaller artefact of the same content into the place of one. Nothing is evicted for it.

    Args:
        accounts: Of the folder.
        staging: For unfinished pointers.
        entry: The one that is there.
        staged: The smaller one.
        blocks: Of a run; none of a chunk.
        times: As `place` has them.

    Returns:
        Its path, the bytes that it takes, and what is removed; 0 bytes where the other one stays,
        as it is not larger, or has changed.

    Raises:
        OSError: Something cannot be written. The other one stays.
    """
    target = entry.path
    if blocks:
        target = os.path.join(os.path.dirname(target), named(_digest(target), blocks))
    size = footprint(target, os.stat(staged).st_size)
    try:
        found = os.lstat(entry.path)
    except FileNotFoundError:
        return target, 0, []
    changed = (found.st_mtime, footprint(entry.path, found.st_size)) != (entry.written, entry.bytes)
    if changed or size >= entry.bytes:
        return target, 0, []
    account = accounts.fresh()
    accounts.add(account, size)
    try:
        place(accounts.root, staged, target, times)
        removed = lead(staging, target, blocks)
    except BaseException:
        accounts.add(account, -size, -1)
        raise
    if not blocks:
        accounts.add(account, -entry.bytes, -1)
    accounts.count_off(account, removed)
    return target, size, removed


def _digest(path: str) -> str:
    """Returns the digest of the blocks of a run, from its name."""
    return os.path.basename(path).partition("-")[0]
