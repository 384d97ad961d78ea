# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Where a writer keeps what is not finished: a folder that does not outlive it for long.

A lock that the writer holds while it lives says that the folder is in use. What a writer that died
has left, under whatever names, goes with its folder. Where a lock may be one of another machine
that is not seen here, as on some network file systems, the folder has to be old as well.
"""

import fcntl
import os
import secrets
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOCK, _NEW = "lock", "lock.new"
_FOREIGN_SECONDS = 3600.0  # no save takes as long
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Staging:
    """The folder of one writer, made when it is first needed and whenever it is gone. Thread safe.

    In a forked process it is that of the parent: names are random, and the lock is shared.
    """

    def __init__(self, writers: str) -> None:
        """Takes the folder of all writers."""
        self._writers = writers
        self._making = threading.Lock()
        self._folder: str | None = None
        self._close: Callable[[], object] = _nothing

    @contextmanager
    def file(self) -> Iterator[str]:
        """Yields a path for files, one after the other. What has it at the end is removed.

        Raises:
            OSError: The folder cannot be made.
        """
        path = os.path.join(self._ready(), secrets.token_hex(8))
        try:
            yield path
        finally:
            with suppress(OSError):
                os.unlink(path)

    def close(self) -> None:
        """Removes the folder."""
        self._close()
        self._folder, self._close = None, _nothing

    def _ready(self) -> str:
        """Returns the folder, and notes that its writer lives."""
        with self._making:
            if self._folder is not None:
                with suppress(FileNotFoundError):
                    os.utime(os.path.join(self._folder, _LOCK))
                    return self._folder
                self.close()
            while True:
                name = f"{_machine()}-{os.getpid()}-{secrets.token_hex(4)}"
                folder = os.path.join(self._writers, name)
                os.makedirs(folder)
                # Until it has its lock, somebody may take it for one that was left.
                with suppress(FileNotFoundError):
                    lock = _locked(folder)
                    self._close = weakref.finalize(self, _remove, folder, lock, os.getpid())
                    self._folder = folder
                    return folder


def _nothing() -> None:
    """Closes what was not made."""


def remove_abandoned(writers: str) -> int:
    """Removes the folders of writers that are gone; returns the number of files in them."""
    removed = 0
    with suppress(OSError), os.scandir(writers) as found:
        for entry in found:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False) and _is_abandoned(entry):
                    names = {*os.listdir(entry.path)} - {_LOCK, _NEW}
                    shutil.rmtree(entry.path, ignore_errors=True)
                    removed += len(names)
    return removed


def _locked(folder: str) -> int:
    """Makes a folder's lock and returns its descriptor.

    Raises:
        FileNotFoundError: The folder is gone.
    """
    new = os.path.join(folder, _NEW)
    lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(new, os.path.join(folder, _LOCK))
    except BlockingIOError:
        os.close(lock)
        raise FileNotFoundError(folder) from None
    except BaseException:
        os.close(lock)
        raise
    return lock


def _is_abandoned(entry: "os.DirEntry[str]") -> bool:
    """Returns whether nobody uses a writer's folder."""
    here = entry.name.startswith(f"{_machine()}-")
    for name in (_LOCK, _NEW):
        try:
            lock = os.open(
                os.path.join(entry.path, name), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
            )
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return here or _age(os.fstat(lock)) > _FOREIGN_SECONDS
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
    # Without a lock it is being made, or its writer died before it had one.
    return here or _age(entry.stat(follow_symlinks=False)) > _FOREIGN_SECONDS


def _age(found: os.stat_result) -> float:
    """Returns the seconds since something was changed."""
    return time.time() - found.st_mtime


def _machine() -> str:
    """Returns the ID of this machine's boot, the same in all of its containers."""
    try:
        return _BOOT.read_text()[:8]
    except OSError:
        return "00000000"


def _remove(folder: str, lock: int, owner: int) -> None:
    """Removes a folder, unless this process was forked from the one that made it."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
