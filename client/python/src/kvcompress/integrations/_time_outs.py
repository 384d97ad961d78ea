# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""How long a call may take: a moment, and time for its bytes on a machine that others use too."""

_RESTORE_SECONDS, _RESTORE_BYTES = 1.0, 25e6  # a second; a core restores several times as much
_SAVE_SECONDS, _SAVE_BYTES = 30.0, 2e6


def to_restore(size: int, given: float | None) -> float:
    """Returns the seconds that restoring may take, while a request waits.

    Args:
        size: Bytes of what is restored.
        given: What the configuration says, if it does.
    """
    return _RESTORE_SECONDS + size / _RESTORE_BYTES if given is None else given


def to_save(size: int, given: float | None) -> float:
    """Returns the seconds that compressing so many bytes may take, which nobody waits for."""
    return _SAVE_SECONDS + size / _SAVE_BYTES if given is None else given
