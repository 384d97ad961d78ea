# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Which artefacts a process sees, and which it needs to stay."""

import math
import threading
import time
from collections import Counter
from collections.abc import Iterable


class Presence:
    """Hides artefacts that are of no use here, and pins those that are about to be read.

    Thread safe.
    """

    def __init__(self) -> None:
        """Hides and pins nothing."""
        self._lock = threading.Lock()
        self._hidden: dict[str, float] = {}  # until when, by the monotonic clock
        self._pins: Counter[str] = Counter()

    def hide(self, path: str, seconds: float = math.inf) -> None:
        """Hides an artefact for a while."""
        with self._lock:
            self._hidden[path] = time.monotonic() + seconds

    def show(self, path: str) -> None:
        """Shows an artefact again, as where another one has its name."""
        with self._lock:
            self._hidden.pop(path, None)

    def hides(self, path: str) -> bool:
        """Returns whether an artefact is hidden."""
        return bool(self._hidden) and time.monotonic() < self._hidden.get(path, 0.0)

    def pin(self, paths: Iterable[str]) -> None:
        """Keeps artefacts from being evicted by this process, until they are unpinned as often."""
        with self._lock:
            self._pins.update(paths)

    def unpin(self, paths: Iterable[str]) -> None:
        """Ends what `pin` began."""
        with self._lock:
            for path in paths:
                self._pins[path] -= 1
                if self._pins[path] <= 0:
                    del self._pins[path]

    def pins(self, path: str) -> bool:
        """Returns whether an artefact is to stay."""
        return path in self._pins
