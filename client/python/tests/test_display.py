# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Reports as people and programs read them: one line, HTML, dictionaries, tables."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

import kvcompress
from kvcompress.v1 import compression_service_pb2, quality_pb2, server_info_pb2, tensor_pb2

ROLES = {"key": tensor_pb2.TENSOR_ROLE_KEY, "value": tensor_pb2.TENSOR_ROLE_VALUE}
EXACT = quality_pb2.QualityMetrics(elements=6)


def tensor(name: str, snr_db: float | None, role: str = "", layer: int | None = None) -> Any:  # noqa: ANN401
    """Makes the report of a tensor, which passes above 20 dB."""
    report = quality_pb2.TensorReport(
        name=name,
        dtype=tensor_pb2.DATA_TYPE_BF16,
        shape=[1, 2, 3],
        role=ROLES.get(role, tensor_pb2.TENSOR_ROLE_UNSPECIFIED),
        layer=layer,
        codec="int4:64",
        bits_per_value=4.25,
        metrics=EXACT,
    )
    if snr_db is not None:
        report.metrics.snr_db = snr_db
    report.verdict.passed = snr_db is None or snr_db > 20
    return report


def report_of(tensors: list[Any]) -> kvcompress.CompressionReport:
    """Makes a report on these tensors."""
    message = quality_pb2.CompressionReport(
        codec="int4:64",
        original_size_bytes=6_635_520,
        compressed_size_bytes=1_871_234,
        compression_ratio=3.5461,
        tensor_count=len(tensors),
        tensors_failed=sum(not each.verdict.passed for each in tensors),
        tensors=tensors,
        metrics=quality_pb2.QualityMetrics(snr_db=19.756, cosine_similarity=0.99),
    )
    message.verdict.level = quality_pb2.QUALITY_LEVEL_POOR
    return kvcompress.CompressionReport.from_proto(message)


SOME = [
    tensor("layer_2_key", 15.5, "key", 2),
    tensor("layer_2_value", 31, "value", 2),
    tensor("layer_10_key", None, "key", 10),
    tensor("<b>&", 22),
]


def test_client_in_one_line() -> None:
    """Where it calls, and whether it still can; never a key."""
    with kvcompress.Client("127.0.0.1:1", timeout=2.5) as client:
        assert repr(client) == "Client('127.0.0.1:1', timeout 2.5 s)"
    assert repr(client) == "Client('127.0.0.1:1', timeout 2.5 s, closed)"
    secret = b"-----BEGIN secret"
    with kvcompress.Client("kv.example:1", private_key=secret, certificate_chain=secret) as client:
        assert repr(client) == "Client('kv.example:1', TLS)"


def test_self_test_in_one_line() -> None:
    """With the first failure, if there is one."""
    passed = compression_service_pb2.SelfTestResult(codec="int4:64", passed=True)
    passed.report.compression_ratio = 3.758
    passed.report.metrics.snr_db = 19.756
    failed = compression_service_pb2.SelfTestResult(codec="klt", message="another\nvalue")
    report = kvcompress.SelfTestReport.from_proto(
        compression_service_pb2.SelfTestResponse(passed=True, results=[passed, passed])
    )
    assert repr(report) == "SelfTestReport(passed, 2 results)"
    assert repr(report.results[0]) == "SelfTestResult(int4:64, passed, 3.76x, SNR 19.76 dB)"
    report = kvcompress.SelfTestReport.from_proto(
        compression_service_pb2.SelfTestResponse(results=[passed, failed, failed])
    )
    line = r"klt, failed: another\nvalue"
    assert repr(report.results[1]) == f"SelfTestResult({line})"
    assert repr(report) == f"SelfTestReport(2 of 3 results failed, the first: {line})"


def test_one_line() -> None:
    report = report_of(SOME)
    line = "int4:64, 3.55x, SNR 19.76 dB, POOR, 1 of 4 tensors miss bounds, 6.64 MB -> 1.87 MB"
    assert repr(report) == f"CompressionReport({line})"
    result = kvcompress.CompressionResult(report, bytes(10**6), None, None)
    assert repr(result) == f"CompressionResult({line}, in memory)"
    in_file = kvcompress.CompressionResult(report, None, Path("a b"), None)
    assert repr(in_file) == f"CompressionResult({line}, in 'a b')"
    assert repr(report.tensors[0]) == (
        "TensorReport('layer_2_key', key of layer 2, BF16 [1, 2, 3], int4:64, "
        "4.25 bits per value, SNR 15.50 dB, not passed)"
    )
    assert repr(report.tensors[3]).startswith("TensorReport('<b>&', BF16 [1, 2, 3], int4:64")
    empty = kvcompress.CompressionReport.from_proto(quality_pb2.CompressionReport())
    assert "exact, not passed, 0 tensors, 0 bytes -> 0 bytes" in repr(empty)


def test_one_line_on_what_was_restored() -> None:
    message = compression_service_pb2.DecompressionReport(
        compressed_size_bytes=999_499,
        output_size_bytes=999_500,
        tensor_count=60,
        tensors_selected=30,
        labels={"<a>": "&"},
    )
    report = kvcompress.DecompressionReport.from_proto(message)
    line = "30 of 60 tensors, every checksum right, 999 kB -> 1 MB"
    assert repr(report) == f"DecompressionReport({line})"
    result = kvcompress.DecompressionResult(report, {}, {}, bytes(10**6), None)
    assert repr(result) == f"DecompressionResult({line}, in memory)"
    verified = kvcompress.DecompressionResult(report, None, None, None, None)
    assert repr(verified) == f"DecompressionResult({line}, verified only)"
    assert "&lt;a&gt;=&amp;" in result._repr_html_()
    assert json.loads(json.dumps(report.to_dict()))["labels"] == {"<a>": "&"}


def test_html_is_escaped_and_well_formed() -> None:
    html = report_of([SOME[2], *SOME[:2], SOME[3]])._repr_html_()  # as names are sorted
    table, svg = html.split("</table>")
    assert "<b>" not in html
    assert "1 of 4 tensors miss bounds" in table
    chart = ElementTree.fromstring(svg)
    titles = [each.text for each in chart.iter("title")]
    assert titles == [
        "SNR by layer, dB; red frame: not passed",
        "layer 2: layer_2_key, SNR 15.50 dB, int4:64, not passed",
        "layer 2: layer_2_value, SNR 31.00 dB, int4:64",
        "layer 10: layer_10_key, exact, int4:64",
        "<b>&: <b>&, SNR 22.00 dB, int4:64",
    ]
    bars = [each for each in chart.iter("rect") if each.find("title") is not None]
    heights = [float(each.attrib["height"]) for each in bars]
    assert heights[2] == max(heights), "what is exact is highest"
    assert heights[0] == pytest.approx(heights[1] / 2)
    assert ["stroke" in each.attrib for each in bars] == [True, False, False, False]


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_html_of_few_and_many(count: int) -> None:
    tensors = [tensor(f"layer_{i}_key", 30 + i, "key", i) for i in range(count)]
    html = report_of(tensors)._repr_html_()
    assert len(html) < 80_000
    assert ("<svg" in html) == (count > 0)
    assert ("; first 160 of 1000" in html) == (count > 160)


def test_violations_are_cut() -> None:
    message = quality_pb2.CompressionReport()
    message.verdict.violations.extend(f"<{i}>" for i in range(7))
    html = kvcompress.CompressionReport.from_proto(message)._repr_html_()
    assert "&lt;4&gt;<br>and 2 more" in html


def test_dictionary_is_json() -> None:
    values = json.loads(json.dumps(report_of(SOME).to_dict()))
    verdict = {"passed": False, "level": "POOR", "violations": [], "missed": []}
    assert values["verdict"] == verdict
    assert values["metrics"]["snr_db"] == 19.756
    assert values["tensors"][2]["metrics"]["snr_db"] is None
    assert values["tensors"][0]["shape"] == [1, 2, 3]
    assert values["worst_tensor"] is None


def test_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever pandas makes of the rows."""
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    rows: Any = report_of(SOME).to_pandas()
    assert [(row["name"], row["layer"], row["snr_db"]) for row in rows[:2]] == [
        ("layer_2_key", 2, 15.5),
        ("layer_2_value", 2, 31),
    ]
    assert rows[0].keys() >= {"role", "codec", "rmse", "passed", "level", "violations", "digest"}
    assert "metrics" not in rows[0]
    message = quality_pb2.CompressionReport(tensor_count=3)
    with pytest.raises(ValueError, match="report_tensors=True"):
        kvcompress.CompressionReport.from_proto(message).to_pandas()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        report_of(SOME).to_pandas()


def test_server_info() -> None:
    message = server_info_pb2.GetServerInfoResponse(
        version="0.1.0", api_version="v1", format_version=1, kernels="AVX2"
    )
    message.codecs.add(name="c", dtypes=[tensor_pb2.DATA_TYPE_F16])
    info = kvcompress.ServerInfo.from_proto(message)
    assert repr(info) == "ServerInfo(0.1.0, API v1, format 1, AVX2, 1 codecs)"
    assert json.loads(json.dumps(info.to_dict()))["codecs"][0]["dtypes"] == ["F16"]


def test_the_ratio_of_keys_comes_first() -> None:
    """It says the most about the damage to a model."""
    one = tensor("layer_0_key", 15.5, "key", 0)
    one.metrics.centred_snr_db = 9.25
    assert "keys' SNR 9.25 dB, SNR 15.50 dB" in repr(kvcompress.TensorReport.from_proto(one))
