# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""When artefacts were read, noted in memory and written down now and then."""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

_SECONDS = 30.0  # between writings


class AccessTimes:
    """Records when artefacts were last read. Thread safe.

    A note costs no call of the system. Every half minute one is made for each artefact that was
    read since. A process that is killed loses the notes of so long.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Takes the file system's clock."""
        self._clock = clock
        self._lock = threading.Lock()
        self._notes: dict[str, float] = {}
        self._next = time.monotonic() + _SECONDS

    def note(self, path: str) -> None:
        """Notes that an artefact is read now."""
        with self._lock:
            self._notes[path] = self._clock()
            due = time.monotonic() >= self._next
        if due:
            self.write()

    def last(self, path: str) -> float:
        """Returns the time of a note that is not written yet, or 0."""
        return self._notes.get(path, 0.0)

    def forget(self, path: str) -> None:
        """Drops the note of an artefact that is gone."""
        with self._lock:
            self._notes.pop(path, None)

    def write(self) -> None:
        """Writes all notes. When an artefact was written does not change."""
        with self._lock:
            notes, self._notes = self._notes, {}
            self._next = time.monotonic() + _SECONDS
        for path, used in notes.items():
            with suppress(OSError):  # it is gone, or somebody else's
                written = os.stat(path, follow_symlinks=False).st_mtime_ns
                os.utime(path, ns=(int(used * 1e9), written), follow_symlinks=False)
