# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What was tried and cannot succeed for now: not tried again for a while."""

import threading
import time

from kvcompress.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    UnimplementedError,
)

HOPELESS_SECONDS = 300.0  # then somebody may have done something about it
_MOST = 100_000
_LASTING = (
    FailedPreconditionError,
    NotFoundError,
    PermissionDeniedError,
    UnimplementedError,
)


def is_lasting(error: Exception) -> bool:
    """Returns whether the same call would fail in the same way, with any tensors.

    What an artefact or a cache is lacking is another matter.
    """
    if isinstance(error, InvalidArgumentError):
        return bool(error.field) and str(error.field).startswith("options")
    return isinstance(error, _LASTING)


class Hopeless:
    """Names of such attempts. Thread safe."""

    def __init__(self, seconds: float = HOPELESS_SECONDS) -> None:
        """Remembers each for so many seconds."""
        self._seconds = seconds
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}

    def note(self, name: str) -> None:
        """Remembers an attempt."""
        now = time.monotonic()
        with self._lock:
            if len(self._until) >= _MOST:
                self._until = {each: until for each, until in self._until.items() if until > now}
            if len(self._until) < _MOST:
                self._until[name] = now + self._seconds

    def includes(self, name: str) -> bool:
        """Returns whether an attempt is not worth it yet."""
        return bool(self._until) and time.monotonic() < self._until.get(name, 0.0)
