# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Warnings of reports, as Python has warnings."""

import sys
import warnings

from kvcompress._inputs import printable
from kvcompress._reports import CompressionReport
from kvcompress.v1 import quality_pb2

_PACKAGE = __name__.partition(".")[0]


class CompressionWarning(UserWarning):
    """A cache was compressed or measured, and its report has a warning.

    The text begins with the warning's code, such as `NO_ROLES`, so that a filter can tell:
    `warnings.filterwarnings("ignore", "NO_ROLES", kvcompress.CompressionWarning)`.
    """


def report_with_warnings(message: quality_pb2.CompressionReport) -> CompressionReport:
    """Returns the report of a call, and issues its warnings where the package was called."""
    report = CompressionReport.from_proto(message)
    for each in report.warnings:
        where = f" (tensor {each.tensor!r})" if each.tensor else ""
        text = printable(f"{each.code}: {each.message}{where}")
        warnings.warn(text, CompressionWarning, stacklevel=depth_of_caller())
    return report


def depth_of_caller() -> int:
    """Returns the `stacklevel`, for the caller, of the first frame outside the package."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and _is_inside(frame.f_globals.get("__name__", "")):
        frame, depth = frame.f_back, depth + 1
    return depth


def _is_inside(module: str) -> bool:
    return module.partition(".")[0] == _PACKAGE
