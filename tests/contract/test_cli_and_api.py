# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What kv-compress prints is what the API says, as the Python client receives it."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kv_compress import Run, succeed, words_of

from kvcompress import Client, DataLossError, KVCompressError, TensorReport, Thresholds, payload
from kvcompress.options import CompressArguments
from kvcompress.v1.quality_pb2 import QualityMetrics
from oracle.fixtures import SAMPLE
from oracle.source import tensor, write

METRICS = tuple(
    field.name for field in QualityMetrics.DESCRIPTOR.fields if field.name != "elements"
)
SIZES = ("original_size_bytes", "compressed_size_bytes", "bits_per_value")
REPORT = ("codec", *SIZES, "compression_ratio", "tensor_count", "tensors_failed", "payload_digest")
TENSOR = ("name", "dtype", "role", "layer", "codec", *SIZES, "digest")
RESTORED = (
    *("format_version", "compression_ratio", "tensor_count", "tensors_selected", "payload_digest"),
    *("original_size_bytes", "compressed_size_bytes", "output_size_bytes"),
)


def fields(message: object, names: tuple[str, ...]) -> dict[str, Any]:
    """Some fields of a message of the API, by the names that the JSON has for them too."""
    return {name: getattr(message, name) for name in names}


def tensor_json(report: TensorReport) -> dict[str, Any]:
    """What the JSON has of a tensor."""
    return {
        **fields(report, TENSOR),
        **fields(report.metrics, METRICS),
        "shape": list(report.shape),
        "quality_level": report.verdict.level.value,
        "passed": report.verdict.passed,
        "violations": list(report.verdict.violations),
        "rope": None if report.rope is None else asdict(report.rope),
    }


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], {}),
        (["--group-size=32", "-verbose=true"], {"codec": {"name": "int4", "group_size": 32}}),
        (["-codec", "int8", "-label", "a=b=c"], {"codec": "int8", "labels": {"a": "b=c"}}),
        (["-codec", "lossless"], {"codec": "lossless"}),
        (
            ["-sparsity", "0.5", "-last-stage", "zstd"],
            {"codec": "sparse:0.5+zstd"},
        ),
        (["-codec", "int4-kivi", "-rope-theta", "1e5"], {"codec": "int4-kivi", "rope_theta": 1e5}),
        (
            ["-thresholds", "max_rmse=9,min_snr_db=1", "-key-thresholds=max_error=99"],
            {
                "codec": "auto",
                "effort": "fast",
                "thresholds": Thresholds(max_rmse=9, min_snr_db=1),
                "key_thresholds": Thresholds(max_error=99),
            },
        ),
    ],
    ids=words_of,
)
def test_report_of_compression(
    run: Run, client: Client, arguments: list[str], options: CompressArguments
) -> None:
    """Of all tensors, and of each."""
    answer = succeed(run("-input", SAMPLE, "-metrics-only", "-verbose", *arguments))
    options.setdefault("codec", "int4")
    report = client.measure(SAMPLE, **options)
    assert answer.items() >= fields(report, REPORT).items()
    assert answer.items() >= fields(report.metrics, METRICS).items()
    assert answer["quality_level"] == report.verdict.level.value
    assert answer["quality_passed"] == report.verdict.passed
    assert answer["violations"] == list(report.verdict.violations)
    assert answer["tensors"] == [tensor_json(each) for each in report.tensors]
    assert answer["tensor_metrics"] == {f"{t.name}_rmse": t.metrics.rmse for t in report.tensors}
    worst = report.worst_tensor
    if worst is None:
        assert answer["worst_tensor"] is None
    else:
        names = ("rmse", "snr_db", "centred_snr_db", "max_error", "cosine_similarity")
        assert answer["worst_tensor"] == {"name": worst.name, **fields(worst.metrics, names)}


def test_report_of_decompression(run: Run, client: Client, tmp_path: Path) -> None:
    """Of all of it, of a part, and of -verify; and the files are the same."""
    succeed(run("-input", SAMPLE, "-output", "artefact", "-label", "model=m"))
    path = tmp_path / "artefact"
    patterns = ["*_key", "layer_0_value"]
    for arguments, answer in (
        ([], client.decompress(path)),
        (["-tokens", "3:7"], client.decompress(path, tokens=(3, 7))),
        (
            [word for each in patterns for word in ("-tensors", each)],
            client.decompress(path, tensors=patterns),
        ),
    ):
        restore = ("-decompress", "-input", path, "-output", "out", "-force")
        printed = succeed(run(*restore, *arguments))
        assert printed.items() >= fields(answer.report, RESTORED).items()
        assert printed["labels"] == {"model": "m"}
        assert (tmp_path / "out").read_bytes() == answer.safetensors
    verified = succeed(run("-verify", path, "-label", "model=m"))
    report = client.decompress(path, verify_only=True).report
    assert verified["verified"] is True
    assert verified.items() >= fields(report, RESTORED).items()


def test_list_of_an_artefact(run: Run, artefact: Path) -> None:
    """As kvcompress.payload reads the header."""
    answer = succeed(run("-info", artefact))
    header = payload.read_header(artefact.read_bytes())
    assert answer["payload_digest"] == header.checksum
    assert (answer["labels"], answer["metadata"]) == (header.labels, header.metadata)
    for printed, entry in zip(answer["tensors"], header.tensors, strict=True):
        assert printed["payload_size_bytes"] == entry.end - entry.begin
        assert printed["role"] == {"k": "key", "v": "value"}[entry.role]
        assert printed.items() >= fields(entry, ("name", "codec", "dtype", "layer")).items()
        assert (printed["shape"], printed["digest"]) == (list(entry.shape), entry.digest)
        bits = 8 * printed["payload_size_bytes"] / math.prod(entry.shape)
        assert printed["bits_per_value"] == pytest.approx(bits)


@pytest.mark.parametrize("where", [200, -5, None, "label"])
def test_damage(run: Run, client: Client, tmp_path: Path, where: int | str | None) -> None:
    """In the header, the payload, the length, the labels: code, reason, message and place."""
    succeed(run("-input", SAMPLE, "-output", "artefact", "-label", "model=m"))
    path = tmp_path / "artefact"
    data = bytearray(path.read_bytes())
    if isinstance(where, int):
        data[where] ^= 4
    elif where is None:
        del data[-1]
    path.write_bytes(data)
    label = "other" if where == "label" else "m"
    with pytest.raises(KVCompressError) as caught:
        client.decompress(path, verify_only=True, expected_labels={"model": label})
    error = caught.value
    done = run("-verify", path, "-label", f"model={label}")
    assert done.returncode == 1
    printed = json.loads(done.stdout)
    assert printed.pop("verified") is False
    places = fields(error, ("code", "message", "reason", "tensor", "offset", "element"))
    assert printed == {name: value for name, value in places.items() if value is not None}
    assert (error.reason == "IDENTITY_MISMATCH") is (where == "label")
    assert isinstance(error, DataLossError) or where == "label"


@pytest.mark.parametrize(
    ("arguments", "bounds"),
    [
        (["-metrics-only", "-min-snr-db", "22.125"], [("snr_db", 22.125)]),
        (
            ["-output", "out", "-thresholds", "max_rmse=1e-7", "-value-thresholds", "max_rmse=1"],
            [("rmse", 1e-7)],
        ),
        (
            ["-output", "out", "-key-thresholds", "min_centred_snr_db=60,min_token_snr_db_p1=70"],
            [("centred_snr_db", 60), ("token_snr_db_p1", 70)],
        ),
        (
            ["-metrics-only", "-thresholds", "max_error=0.001,min_cosine_similarity=0.99999"],
            [("max_error", 0.001), ("cosine_similarity", 0.99999)],
        ),
    ],
    ids=lambda value: words_of(value) if isinstance(value[0], str) else "",
)
def test_gate_that_does_not_hold(
    run: Run, client: Client, tmp_path: Path, arguments: list[str], bounds: list[tuple[str, float]]
) -> None:
    """It is judged by the tensors' own metrics, and no output is left."""
    done = run("-input", SAMPLE, "-codec", "int4", *arguments)
    assert done.returncode == 2
    answer = json.loads(done.stdout)
    assert answer["quality_passed"] is False
    report = client.measure(SAMPLE, codec="int4")
    missed = 0
    for each in report.tensors:
        for metric, bound in bounds:
            value = getattr(each.metrics, metric)
            upper = metric in {"rmse", "max_error"}
            if "-value-thresholds" in arguments and each.role == "value":
                continue  # the values hold theirs
            if "-key-thresholds" in arguments and each.role != "key":
                continue
            missed += value is not None and (value >= bound if upper else value <= bound)
    sentences = [each for each in answer["violations"] if "misses by" in each]
    more = [each for each in answer["violations"] if each.startswith("and ")]
    assert len(sentences) + sum(int(each.split()[1]) for each in more) == missed > 0
    assert list(tmp_path.iterdir()) == []


def test_gate_on_what_a_shape_has_not(run: Run, tmp_path: Path) -> None:
    """It does not hold, where there is an error: nobody knows."""
    shape = (2, 8, 64)
    values = np.random.default_rng(8).standard_normal(shape)
    file = write([tensor(name, "F32", values, shape) for name in ("layer_0_key", "layer_0_value")])
    (tmp_path / "flat.safetensors").write_bytes(file)
    bounds = ("-thresholds", "min_centred_snr_db=-300,min_token_snr_db_p1=-300")
    done = run("-input", "flat.safetensors", "-metrics-only", "-codec", "int4", *bounds)
    assert done.returncode == 2
    violations = json.loads(done.stdout)["violations"]
    assert len([each for each in violations if "not known for its shape" in each]) == 3
    succeed(run("-input", "flat.safetensors", "-metrics-only", "-codec", "auto", *bounds))
