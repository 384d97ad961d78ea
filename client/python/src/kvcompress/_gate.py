# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The quality gate: bounds that every tensor holds, or nothing is published."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvcompress._reports import CompressionReport
from kvcompress._tensor_report import TensorReport
from kvcompress.errors import QualityError
from kvcompress.v1 import compression_service_pb2 as service_pb2
from kvcompress.v1 import quality_pb2
from kvcompress.v1.quality_types import Metrics

_METRICS = frozenset(Metrics.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class MissedBound:
    """A bound that a tensor does not hold.

    Attributes:
        tensor: Name of the tensor.
        metric: Name of the metric, as in Metrics.
        value: What was measured; None where the tensor's shape has no such metric.
        bound: Name of the bound, as in Thresholds.
        limit: What was given.
    """

    tensor: str
    metric: str
    value: float | None
    bound: str
    limit: float

    def __str__(self) -> str:
        """Gives a sentence."""
        side = "below" if _is_upper(self.bound) else "above"
        if self.value is None:
            return (
                f"{self.metric} of tensor {self.tensor!r} is not known for its shape, so it is "
                f"not {side} {self.limit:g}"
            )
        return (
            f"{self.metric} {self.value:.5g} of tensor {self.tensor!r} is not {side} {self.limit:g}"
        )

    @property
    def excess(self) -> float:
        """By how much it is missed, relative to the limit; infinite where nobody knows."""
        if self.value is None:
            return math.inf
        return abs(self.value - self.limit) / (abs(self.limit) or 1)


class Gate:
    """Holds a report to the bounds of a call, as `kv-compress` does.

    Only bounds that were given count, not the server's defaults; of a key or a value its own
    before those for all. Every tensor has to hold them.
    """

    def __init__(self, options: service_pb2.CompressOptions) -> None:
        """Takes the bounds of a call, and has its report list every tensor."""
        self._codec = options.codec
        self._list_tensors = options.report_tensors
        self._bounds = options.thresholds
        self._by_role = {role: _merged(options, role) for role in ("key", "value")}
        options.report_tensors = True

    def hold(self, report: CompressionReport) -> CompressionReport:
        """Gives the report as it was asked for.

        Raises:
            QualityError: A tensor misses a bound.
        """
        if not self._list_tensors:
            report, full = replace(report, tensors=()), report
        else:
            full = report
        missed = sorted(
            (each for tensor in full.tensors for each in self._missed(tensor)),
            key=lambda each: -each.excess,
        )
        if missed:
            raise QualityError(self._message(full, missed), report, tuple(missed))
        return report

    def _missed(self, tensor: TensorReport) -> Iterator[MissedBound]:
        """Gives the bounds that a tensor misses."""
        bounds = self._by_role.get(tensor.role or "", self._bounds)
        for field, limit in bounds.ListFields():
            metric = _metric(field.name)
            value = getattr(tensor.metrics, metric)
            if value is None:
                held = not _is_unknown(tensor, metric)
            else:
                held = value < limit if _is_upper(field.name) else value > limit
            if not held:
                yield MissedBound(tensor.name, metric, value, field.name, limit)

    def _message(self, report: CompressionReport, missed: list[MissedBound]) -> str:
        """Says what is missed, and what would hold it."""
        tensors = len({each.tensor for each in missed})
        remedy = "lossless" if self._codec.startswith("auto") else "auto"
        return (
            f"{tensors} of {report.tensor_count} tensors miss a bound with {report.codec}; worst: "
            f'{missed[0]}. Nothing was written. codec="{remedy}" holds the bounds on every tensor; '
            "require=False returns the result as it is"
        )


def gate_of(options: service_pb2.CompressOptions) -> Gate | None:
    """Gives the gate of a call; None when no bounds were given."""
    given = (
        options.HasField("thresholds")
        or options.HasField("key_thresholds")
        or options.HasField("value_thresholds")
    )
    return Gate(options) if given else None


def _merged(options: service_pb2.CompressOptions, role: str) -> quality_pb2.QualityThresholds:
    """Gives the bounds for tensors of a role."""
    bounds = quality_pb2.QualityThresholds()
    bounds.CopyFrom(options.thresholds)
    bounds.MergeFrom(options.key_thresholds if role == "key" else options.value_thresholds)
    return bounds


def _is_upper(bound: str) -> bool:
    """Tells whether a bound is one from above, by its name."""
    return bound.startswith("max_")


def _metric(bound: str) -> str:
    """Gives the metric of a bound: `max_error` is one itself, `max_rmse` is for `rmse`."""
    return bound if bound in _METRICS else bound[4:]


def _is_unknown(tensor: TensorReport, metric: str) -> bool:
    """Tells whether a metric is missing for the tensor's shape, and would tell of an error.

    The error of the first token is known wherever tokens are. A metric that is missing for any
    other reason is that of an exact tensor, or is not for this one.
    """
    roles = {"centred_snr_db": {"key"}, "token_snr_db_p1": {"key", "value"}}.get(metric, set())
    metrics = tensor.metrics
    return tensor.role in roles and metrics.max_error > 0 and metrics.first_token_rmse is None
