# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A folder for temporary files of any size, which does not outlast its process for long."""

import fcntl
import os
import shutil
import stat
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

_LOCK = "lock"


class PrivateFolder:
    """A folder where temporary files go. It is removed with this object, or on `remove`.

    That of a process that was killed is removed by the next one that makes one: a lock shows
    that no process uses it.

    Attributes:
        path: The folder.
    """

    def __init__(self, prefix: str) -> None:
        """Makes a folder whose name begins like this.

        Raises:
            OSError: There is no space for one.
        """
        _remove_abandoned(Path(tempfile.gettempdir()), prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        lock = os.open(self.path / "new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self.remove = weakref.finalize(self, _remove, self.path, lock, os.getpid())
        fcntl.flock(lock, fcntl.LOCK_EX)
        # From now on others can see whether the folder is in use.
        (self.path / "new").rename(self.path / _LOCK)


def _remove(path: Path, lock: int, owner: int) -> None:
    """Removes a folder, unless this process was forked from the one that made it."""
    os.close(lock)
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)


def _remove_abandoned(place: Path, prefix: str) -> None:
    """Removes the folders of this user's processes that are gone."""
    for path in place.glob(f"{prefix}*"):
        with suppress(OSError):
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                _remove_unlocked(path)


def _remove_unlocked(path: Path) -> None:
    """Removes a folder whose lock nobody has.

    Raises:
        OSError: It has no lock yet, or somebody has it.
    """
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)
