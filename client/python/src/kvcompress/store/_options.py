# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What bounds a store."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from kvcompress.store._quantities import parse_bytes, parse_seconds

_DEFAULT_FRACTION = 0.5
OPTION_NAMES = ("capacity_bytes", "capacity_fraction", "high_watermark", "low_watermark", "ttl")


@dataclass(frozen=True)
class StoreOptions:
    """How much a store keeps, and for how long.

    Attributes:
        capacity_bytes: The most bytes of artefacts, in pages of 4 KiB, each block's pointer being
            one.
        capacity_fraction: The same as a part of the file system, above 0 and up to 1. With both,
            the smaller one holds; with neither, half of the file system.
        high_watermark: The part of the capacity above which artefacts are evicted. With 1, the
            default, as late as possible.
        low_watermark: The part of the capacity down to which they are evicted then, those first
            that were not used for longest. Default 0.9.
        ttl: Seconds after which an artefact that is not written again is gone; None to keep it.
    """

    capacity_bytes: int | None = None
    capacity_fraction: float | None = None
    high_watermark: float = 1.0
    low_watermark: float = 0.9
    ttl: float | None = None

    def __post_init__(self) -> None:
        """Checks the ranges.

        Raises:
            ValueError: A value is out of its range. The message has both.
        """
        for name in ("capacity_bytes", "ttl"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} is {value}, and has to be positive and finite")
        for name in ("capacity_fraction", "high_watermark", "low_watermark"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise ValueError(f"{name} is {value}, and has to be above 0 and at most 1")
        if self.low_watermark > self.high_watermark:
            raise ValueError(
                f"low_watermark is {self.low_watermark}, and may be at most high_watermark, "
                f"{self.high_watermark}"
            )

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Reads a configuration, in which sizes and times may be written as 100G and 7d.

        Raises:
            TypeError: There is no option of a name, or a value has another type.
            ValueError: A value is out of its range.
        """
        for name, value in given.items():
            if name not in OPTION_NAMES:
                raise TypeError(f"{name!r} is no option; there are {', '.join(OPTION_NAMES)}")
            text_too = name in ("capacity_bytes", "ttl")
            allowed = (int, float, str) if text_too else (int, float)
            if isinstance(value, bool) or not isinstance(value, allowed):
                raise TypeError(f"{name} is {value!r}, of the wrong type")
        values = dict(given)
        if "capacity_bytes" in values:
            size = values["capacity_bytes"]
            values["capacity_bytes"] = int(size if isinstance(size, float) else parse_bytes(size))
        if "ttl" in values:
            values["ttl"] = parse_seconds(values["ttl"])
        return cls(**values)

    def capacity(self, folder: str | os.PathLike[str]) -> int:
        """Returns the bytes that a folder may hold.

        Raises:
            OSError: The file system does not say how large it is.
        """
        fraction = self.capacity_fraction
        if fraction is None:
            if self.capacity_bytes is not None:
                return self.capacity_bytes
            fraction = _DEFAULT_FRACTION
        found = os.statvfs(folder)
        part = int(found.f_blocks * found.f_frsize * fraction)
        return part if self.capacity_bytes is None else min(part, self.capacity_bytes)
