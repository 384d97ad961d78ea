# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The lock of a folder: one process at a time counts, publishes and evicts. Readers need none."""

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kvcompress.store._errors import StoreBusyError

_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.01  # seconds between attempts


class FolderLock:
    """An advisory lock on a file, which the system releases when a process dies. Thread safe.

    Not reentrant.
    """

    def __init__(self, path: str, patience: float = 30.0) -> None:
        """Takes the file, and the seconds that the lock is waited for."""
        self._path, self._patience = path, patience
        self._threads = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the lock; makes its file, and the folder of that, where they are gone.

        Raises:
            StoreBusyError: Others have had it for too long.
            OSError: The file cannot be made.
        """
        until = time.monotonic() + self._patience
        if not self._threads.acquire(timeout=self._patience):
            raise self._busy()
        try:
            descriptor = self._lock(until)
            try:
                yield
            finally:
                # Not by closing alone: a process that was forked meanwhile has it open as well.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                os.close(descriptor)
        finally:
            self._threads.release()

    def _lock(self, until: float) -> int:
        """Opens the file and locks it, by attempts: a wait in the system could not be ended."""
        pause = _FIRST_PAUSE
        while True:
            descriptor = self._open()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(descriptor, self._path):
                    return descriptor
            except BlockingIOError:
                pass
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
            if time.monotonic() > until:
                raise self._busy()
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _open(self) -> int:
        """Opens the file, which somebody may have removed with its folder."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(self._path, flags, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            return os.open(self._path, flags, 0o666)

    def _busy(self) -> StoreBusyError:
        """Makes the error."""
        return StoreBusyError(
            f"{self._path!r} has been locked by others for {self._patience:g} s: look for a "
            "process that is stopped (fuser names those that have the file open)"
        )


def _is_at(descriptor: int, path: str) -> bool:
    """Returns whether a file still has its name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
