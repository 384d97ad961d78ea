# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The dataclasses have every field of the messages that they stand for."""

import warnings
from dataclasses import fields
from typing import Any

import pytest

import kvcompress
from kvcompress._warnings import report_with_warnings
from kvcompress.options import compress_options
from kvcompress.v1 import compression_service_pb2, quality_pb2, server_info_pb2

PAIRS: list[tuple[Any, Any]] = [
    (kvcompress.Thresholds, quality_pb2.QualityThresholds),
    (kvcompress.Metrics, quality_pb2.QualityMetrics),
    (kvcompress.Verdict, quality_pb2.QualityVerdict),
    (kvcompress.TensorReport, quality_pb2.TensorReport),
    (kvcompress.RoleCounts, quality_pb2.RoleCounts),
    (kvcompress.ReportWarning, quality_pb2.Warning),
    (kvcompress.ProfileUse, quality_pb2.ProfileUse),
    (kvcompress.CompressionReport, quality_pb2.CompressionReport),
    (kvcompress.DecompressionReport, compression_service_pb2.DecompressionReport),
    (kvcompress.ServerLimits, server_info_pb2.ServerLimits),
    (kvcompress.CodecParameter, server_info_pb2.CodecParameter),
    (kvcompress.CodecInfo, server_info_pb2.CodecInfo),
    (kvcompress.ProfileInfo, server_info_pb2.ProfileInfo),
    (kvcompress.ServerInfo, server_info_pb2.GetServerInfoResponse),
    (kvcompress.SelfTestResult, compression_service_pb2.SelfTestResult),
    (kvcompress.SelfTestReport, compression_service_pb2.SelfTestResponse),
]


@pytest.mark.parametrize(("ours", "message"), PAIRS)
def test_no_field_is_missing(ours: Any, message: Any) -> None:  # noqa: ANN401
    assert [field.name for field in fields(ours)] == [
        field.name for field in message.DESCRIPTOR.fields
    ]


def test_values_are_taken() -> None:
    metrics = quality_pb2.QualityMetrics(rmse=1, centred_snr_db=2, token_snr_db_p1=3)
    tensor = quality_pb2.TensorReport(name="t", metrics=metrics)
    tensor.verdict.violations.append("too much")
    tensor.verdict.missed.add(metric="rmse", value=1, bound="max_rmse", limit=0.5)
    tensor.verdict.missed.add(metric="snr_db", bound="min_snr_db", limit=18, requested=True)
    report = kvcompress.CompressionReport.from_proto(
        quality_pb2.CompressionReport(metrics=metrics, worst_tensor=tensor, tensors=[tensor])
    )
    worst = report.worst_tensor
    assert worst is not None
    assert worst == report.tensors[0]
    assert worst.verdict.violations == ("too much",)
    assert worst.verdict.missed == (
        kvcompress.MissedBound("t", "rmse", 1, "max_rmse", 0.5, requested=False),
        kvcompress.MissedBound("t", "snr_db", None, "min_snr_db", 18, requested=True),
    )
    assert [str(each) for each in worst.verdict.missed] == [
        "rmse 1 of tensor 't' is not below 0.5",
        "snr_db of tensor 't' is not known for its shape, so it is not above 18",
    ]
    pooled = quality_pb2.QualityVerdict(missed=tensor.verdict.missed[:1])
    assert str(kvcompress.Verdict.from_proto(pooled).missed[0]).startswith("rmse 1 of all tensors")
    assert (worst.metrics.centred_snr_db, worst.metrics.token_snr_db_p1) == (2, 3)
    assert (worst.metrics.snr_db, worst.metrics.first_token_rmse) == (None, None)


def test_warnings_are_issued_where_the_package_was_called() -> None:
    message = quality_pb2.CompressionReport()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert report_with_warnings(message).warnings == ()
    message.warnings.add(code="SOME_CODE", message="look at this", tensor="t")
    with pytest.warns(kvcompress.CompressionWarning) as seen:
        report = report_with_warnings(message)
    assert report.warnings == (kvcompress.ReportWarning("SOME_CODE", "look at this", "t"),)
    assert str(seen[0].message) == "SOME_CODE: look at this (tensor 't')"
    assert seen[0].filename == __file__


def test_the_profile_of_a_report() -> None:
    message = quality_pb2.CompressionReport()
    assert kvcompress.CompressionReport.from_proto(message).profile is None
    message.profile.digest, message.profile.label = "sha256:0", "model"
    message.profile.tensor_count = 4
    message.profile.fit = 0.5
    message.tensors.add(name="a", profile_group=0)
    message.tensors.add(name="b")
    report = kvcompress.CompressionReport.from_proto(message)
    assert report.profile == kvcompress.ProfileUse("sha256:0", "model", 4, fit=0.5)
    assert [tensor.profile_group for tensor in report.tensors] == [0, None]
    assert compress_options(profile="model").profile == "model"


def test_roles_become_patterns() -> None:
    options = compress_options(roles={"*.0": "key", "b*": "value", "a": "key"})
    assert list(options.key_patterns) == ["*.0", "a"]
    assert list(options.value_patterns) == ["b*"]
    with pytest.raises(ValueError, match="a role is key or value, not 'keys'"):
        compress_options(roles={"*": "keys"})  # type: ignore[dict-item]
