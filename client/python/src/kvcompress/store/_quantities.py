# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Bytes and times as people write them, such as 100G and 7d."""

import re

_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_BYTES = {"": 1, "B": 1}
for _power, _prefix in enumerate("KMGTP", 1):
    _BYTES |= {_prefix: 1000**_power, f"{_prefix}B": 1000**_power}
    _BYTES |= {f"{_prefix}i": 1024**_power, f"{_prefix}iB": 1024**_power}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_bytes(text: str | int) -> int:
    """Reads a number of bytes: 100G is 10^11, 100Gi is 100 * 2^30.

    Raises:
        ValueError: It is none.
    """
    if isinstance(text, int):
        return text
    return int(_parse(text, _BYTES, "bytes, such as 100G or 64Gi"))


def parse_seconds(text: str | float) -> float:
    """Reads a time: 7d is a week, a number alone is seconds.

    Raises:
        ValueError: It is none.
    """
    if isinstance(text, int | float):
        return text
    return _parse(text, _SECONDS, "a time, such as 7d, 12h or 90s")


def format_bytes(size: float) -> str:
    """Writes a number of bytes for people, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} PB"


def format_seconds(seconds: float) -> str:
    """Writes a time for people, in its largest unit."""
    for unit in ("w", "d", "h", "m"):
        if seconds >= 2 * _SECONDS[unit]:
            return f"{seconds / _SECONDS[unit]:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _parse(text: str, units: dict[str, int], expected: str) -> float:
    """Reads a number with a unit."""
    found = _NUMBER.fullmatch(text.strip())
    if found is None or found[2] not in units:
        raise ValueError(f"{text!r} is not {expected}")
    return float(found[1]) * units[found[2]]
