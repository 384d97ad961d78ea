# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What a folder has to allow before a store uses it, tried at the start and not met by surprise."""

import errno
import fcntl
import logging
import os
import time
from contextlib import suppress

from kvcompress.store._errors import StoreError
from kvcompress.store._layout import is_store
from kvcompress.store._staging import Staging

_LOG = logging.getLogger(__name__)

_NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM}
_FULL = {errno.ENOSPC, errno.EDQUOT}
_SKEW_SECONDS = 5.0  # from here on the clocks of two machines differ
_TIME_SECONDS = 2.0  # to which a file system has to keep access times


def is_full(error: OSError) -> bool:
    """Returns whether an error means that a disk is full."""
    return error.errno in _FULL


def make_folder(root: str, writers: str) -> bool:
    """Makes the folder of a store, and that of its writers; returns whether they can be written.

    Raises:
        StoreError: There is none and none can be made, or something else has its name.
    """
    try:
        os.makedirs(writers, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise StoreError(f"{error.filename!r} is no folder: name another for artefacts") from error
    except OSError as error:
        if not os.path.isdir(root):
            raise StoreError(
                f"the folder {root!r} is not there and cannot be made ({error.strerror}): make it, "
                "and give it to the user of this process"
            ) from error
        if error.errno not in _NOT_WRITABLE | _FULL:
            raise StoreError(f"{root!r} cannot be used: {error}") from error
        if is_full(error):
            return os.access(root, os.W_OK | os.X_OK)
    if os.path.isdir(writers) and all(
        os.access(path, os.W_OK | os.X_OK) for path in (root, writers)
    ):
        return True
    _LOG.warning(
        "%s cannot be written by user %d: artefacts are read there, and none are stored",
        root,
        os.geteuid(),
    )
    return False


def visit_folder(root: str) -> bool:
    """Returns whether a folder that is there can be written.

    Raises:
        StoreError: There is none, or none of a store.
    """
    if not os.path.isdir(root):
        raise StoreError(f"{root!r} is no folder: name one with artefacts")
    if not is_store(root):
        raise StoreError(f"{root!r} has no artefacts: name the folder of an engine")
    return os.access(root, os.W_OK | os.X_OK)


def probe(root: str, staging: Staging) -> float:
    """Tests what a store needs of a file system; returns how far its clock is ahead of ours.

    Where there is no space, only a warning says so: artefacts that are there can be read.

    Raises:
        StoreError: Something is missing. The message says what, and what to do.
    """
    try:
        with staging.file() as path, staging.file() as other:
            _write(path)
            os.replace(path, other)
            _check_locks(root, other)
            return _check_times(root, other)
    except StoreError:
        raise
    except OSError as error:
        if is_full(error):
            _LOG.warning("%s has no room: artefacts are read, and none are stored", root)
            return 0.0
        raise StoreError(f"{root!r} cannot be used: {error}") from error


def _write(path: str) -> None:
    """Writes a small file to the disk."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        os.write(descriptor, b"probe")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_locks(root: str, path: str) -> None:
    """Locks a file twice, which may not work.

    Raises:
        StoreError: It does, or there are no locks.
    """
    remedy = "mount it with locks (NFS: without nolock), or keep artefacts on another file system"
    first, second = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
    try:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(BlockingIOError):
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
            raise StoreError(f"locks on the file system of {root!r} keep nobody out: {remedy}")
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(
            f"the file system of {root!r} has no locks, with which processes keep one bound "
            f"({error.strerror}): {remedy}"
        ) from error
    finally:
        os.close(first)
        os.close(second)


def _check_times(root: str, path: str) -> float:
    """Warns of a clock that differs and of access times that are not kept; returns the former."""
    ahead = os.stat(path).st_mtime - time.time()
    if abs(ahead) < _SKEW_SECONDS:
        ahead = 0.0
    else:
        _LOG.warning(
            "the clock of the file system of %s is %.0f s ahead of this one's", root, ahead
        )
    wanted = time.time() - 100
    os.utime(path, (wanted, wanted))
    if abs(os.stat(path).st_atime - wanted) > _TIME_SECONDS:
        _LOG.warning(
            "the file system of %s does not keep access times: the oldest artefacts are evicted "
            "first, and not those that were not read for longest",
            root,
        )
    return ahead
