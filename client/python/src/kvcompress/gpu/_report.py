# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Reports of what a device encoded, as the service returns them."""

from collections.abc import Sequence
from typing import NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress._reports import CompressionReport
from kvcompress.gpu._artefact import Part, Written
from kvcompress.gpu._metrics import Pair, compare, metrics_of, verdict_of
from kvcompress.gpu._parts import Coding
from kvcompress.payload._codec import Entry
from kvcompress.payload._dtypes import SIZES
from kvcompress.v1 import quality_pb2, tensor_pb2

_ROLES = {
    "k": tensor_pb2.TENSOR_ROLE_KEY,
    "v": tensor_pb2.TENSOR_ROLE_VALUE,
    "-": tensor_pb2.TENSOR_ROLE_UNSPECIFIED,
}


def _badness(metrics: quality_pb2.QualityMetrics) -> tuple[bool, float]:
    """Orders tensors that are not exact, the worst first: keys, by their centred SNR, go first."""
    key = metrics.HasField("centred_snr_db")
    return not key, metrics.centred_snr_db if key else metrics.snr_db


class Measured(NamedTuple):
    """A tensor, what was written of it, and what that restores to."""

    entry: Entry
    part: Part
    digest: str
    source: torch.Tensor
    decoded: torch.Tensor
    group: int | None


def report_of(
    coding: Coding,
    tensors: Sequence[Measured],
    written: Written,
    first_token: int,
    seconds: float,
) -> CompressionReport:
    """Measures tensors, and reports on an artefact.

    Args:
        coding: How the tensors were coded.
        tensors: Its tensors, in order.
        written: The artefact.
        first_token: The position of the cache in its text.
        seconds: How long it took.
    """
    sums = compare(
        [
            Pair(each.source, each.decoded, each.entry.dtype, each.entry.role == "k")
            for each in tensors
        ]
    )
    metrics = metrics_of(sums)
    elements = metrics.elements
    report = quality_pb2.CompressionReport(
        codec=coding.name,
        original_size_bytes=sum(_bytes(each.entry) for each in tensors),
        compressed_size_bytes=len(written.data),
        compression_ratio=2 * elements / len(written.data),
        bits_per_value=8 * len(written.data) / elements if elements else 0,
        metrics=metrics,
        verdict=verdict_of(metrics),
        tensor_count=len(tensors),
        payload_digest=written.checksum,
        processing_seconds=seconds,
    )
    worst = None
    for each, own in zip(tensors, sums, strict=True):
        one = _tensor(each, metrics_of([own]))
        report.tensors.append(one)
        report.tensors_failed += not one.verdict.passed
        if one.metrics.HasField("snr_db") and (
            worst is None or _badness(one.metrics) < _badness(worst.metrics)
        ):
            worst = one
    if worst is not None:
        report.worst_tensor.CopyFrom(worst)
    if coding.profile is not None and tensors:
        use = report.profile
        use.digest, use.label = coding.profile.digest, coding.profile.label
        use.tensor_count, use.first_token = len(tensors), first_token
    roles = [each.entry.role for each in tensors]
    report.roles.keys, report.roles.values = roles.count("k"), roles.count("v")
    report.roles.neither = roles.count("-")
    return CompressionReport.from_proto(report)


def _bytes(entry: Entry) -> int:
    """Bytes of the elements."""
    size = SIZES[entry.dtype]
    for dimension in entry.shape:
        size *= dimension
    return size


def _tensor(measured: Measured, metrics: quality_pb2.QualityMetrics) -> quality_pb2.TensorReport:
    """The report on a tensor."""
    entry, size = measured.entry, measured.part.size
    report = quality_pb2.TensorReport(
        name=entry.name,
        dtype=tensor_pb2.DataType.Value(f"DATA_TYPE_{entry.dtype}"),
        shape=entry.shape,
        role=_ROLES[entry.role],
        codec=entry.codec,
        original_size_bytes=_bytes(entry),
        compressed_size_bytes=size,
        bits_per_value=8 * size / metrics.elements if metrics.elements else 0,
        metrics=metrics,
        verdict=verdict_of(metrics),
        digest=measured.digest,
    )
    if entry.layer is not None:
        report.layer = entry.layer
    if entry.view is not None:
        report.layout = entry.view[0].text
    if measured.part.rope is not None:
        report.rope.CopyFrom(measured.part.rope)
    if measured.group is not None:
        report.profile_group = measured.group
    return report
