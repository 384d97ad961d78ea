# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Holds reports of encoders on a device against those of the service."""

import dataclasses
import math
from typing import Any

import pytest

from kvcompress import CompressionReport


def assert_same_report(found: CompressionReport, expected: CompressionReport) -> None:
    """Requires the same numbers, but for the time and the last bits of sums."""

    def same(one: Any, other: Any, name: str) -> None:  # noqa: ANN401
        if dataclasses.is_dataclass(one):
            for field in dataclasses.fields(one):
                if field.name != "processing_seconds":
                    same(getattr(one, field.name), getattr(other, field.name), field.name)
        elif isinstance(one, tuple):
            assert len(one) == len(other), name
            for each, another in zip(one, other, strict=True):
                same(each, another, name)
        elif isinstance(one, float) and not math.isinf(one):
            assert one == pytest.approx(other, rel=1e-6), name
        else:
            assert one == other, name

    same(dataclasses.replace(found, warnings=()), dataclasses.replace(expected, warnings=()), "")
