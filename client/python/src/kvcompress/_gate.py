# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The quality gate: bounds that every tensor holds, or nothing is published."""

from dataclasses import replace

from kvcompress._reports import CompressionReport
from kvcompress._tensor_report import MissedBound
from kvcompress.errors import QualityError
from kvcompress.v1 import compression_service_pb2 as service_pb2


class Gate:
    """Refuses a result of which a tensor misses a bound of the call, by the server's verdicts.

    Only bounds that were given count, not the server's defaults.
    """

    def __init__(self, options: service_pb2.CompressOptions) -> None:
        """Takes the options of a call, and has its report list every tensor."""
        self._codec = options.codec
        self._list_tensors = options.report_tensors
        options.report_tensors = True

    def hold(self, report: CompressionReport) -> CompressionReport:
        """Returns the report as it was asked for.

        Raises:
            QualityError: A tensor misses a bound.
        """
        missed = sorted(
            (each for tensor in report.tensors for each in tensor.verdict.missed if each.requested),
            key=lambda each: -each.excess,
        )
        asked_for = report if self._list_tensors else replace(report, tensors=())
        if missed:
            raise QualityError(self._message(report, missed), asked_for, tuple(missed))
        return asked_for

    def _message(self, report: CompressionReport, missed: list[MissedBound]) -> str:
        """Describes the missed bounds, and what would meet them."""
        tensors = len({each.tensor for each in missed})
        remedy = "lossless" if self._codec.startswith("auto") else "auto"
        return (
            f"{tensors} of {report.tensor_count} tensors miss a bound with {report.codec}; worst: "
            f'{missed[0]}. Nothing was written. codec="{remedy}" holds the bounds on every tensor; '
            "require=False returns the result as it is"
        )


def gate_of(options: service_pb2.CompressOptions) -> Gate | None:
    """Returns the gate of a call; None when no bounds were given."""
    given = (
        options.HasField("thresholds")
        or options.HasField("key_thresholds")
        or options.HasField("value_thresholds")
    )
    return Gate(options) if given else None
