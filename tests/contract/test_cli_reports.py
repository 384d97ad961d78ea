# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What kv-compress reports on standard output, and the exit status when a gate does not hold."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from kv_compress import Run, bits, refuse, succeed

from oracle.fixtures import SAMPLE

# The fields of the program that was replaced, in its order, and their types.
SEED_FIELDS: dict[str, type] = {
    "compression_ratio": float,
    "original_size_bytes": int,
    "compressed_size_bytes": int,
    "rmse": float,
    "snr_db": float,
    "cosine_similarity": float,
    "max_error": float,
    "quality_level": str,
    "processing_time_ms": float,
    "quality_passed": bool,
    "violations": list,
}
NEW_FIELDS: dict[str, type] = {
    "codec": str,
    "bits_per_value": float,
    "mse": float,
    "mae": float,
    "psnr_db": float,
    "payload_digest": str,
    "worst_tensor": dict,
}


def test_fields_of_the_json(run: Run) -> None:
    """The old fields come first and in order, with their types; then the new ones."""
    answer = succeed(run("-input", SAMPLE, "-output", "out"))
    assert list(answer)[: len(SEED_FIELDS)] == list(SEED_FIELDS)
    for name, kind in {**SEED_FIELDS, **NEW_FIELDS}.items():
        assert type(answer[name]) is kind, name
    assert "tensor_metrics" not in answer
    assert answer["quality_level"] in {"EXCELLENT", "GOOD", "ACCEPTABLE", "POOR"}
    assert re.fullmatch("xxh3-128:[0-9a-f]{32}", answer["payload_digest"])
    assert answer["quality_passed"] is (answer["violations"] == [])


def test_sizes_are_measured(run: Run, tmp_path: Path) -> None:
    """Sizes are those of the files, and the ratio is against 16-bit values."""
    answer = succeed(run("-input", SAMPLE, "-output", "out"))
    data = sum(len(data) for _, _, data in bits(SAMPLE).values())
    size = (tmp_path / "out").stat().st_size
    assert (answer["original_size_bytes"], answer["compressed_size_bytes"]) == (data, size)
    assert answer["compression_ratio"] == pytest.approx(data / size)
    assert answer["bits_per_value"] == pytest.approx(8 * size / (data / 2))


def test_verbose_reports_every_tensor(run: Run) -> None:
    """tensor_metrics has the old keys, one for each tensor; logs stay off stdout."""
    done = run("-input", SAMPLE, "-metrics-only", "-verbose")
    answer = succeed(done)
    assert set(answer["tensor_metrics"]) >= {f"{name}_rmse" for name in bits(SAMPLE)}
    assert all(type(value) is float for value in answer["tensor_metrics"].values())
    assert done.stderr != b""


def test_metrics_only_writes_nothing(run: Run, tmp_path: Path) -> None:
    """It measures what compressing measures."""
    measured = succeed(run("-input", SAMPLE, "-metrics-only"))
    assert list(tmp_path.iterdir()) == []
    compressed = succeed(run("-input", SAMPLE, "-output", "out"))
    del measured["processing_time_ms"], compressed["processing_time_ms"]
    assert measured == compressed


def test_larger_groups_are_smaller_and_worse(run: Run) -> None:
    """The trade of -group-size goes the way it says."""
    answers = [
        succeed(run("-input", SAMPLE, "-metrics-only", "-group-size", n)) for n in (32, 64, 128)
    ]
    ratios = [answer["compression_ratio"] for answer in answers]
    errors = [answer["rmse"] for answer in answers]
    assert ratios == sorted(ratios)
    assert errors == sorted(errors)
    assert succeed(run("-input", SAMPLE, "-metrics-only"))["rmse"] == errors[1]


def test_kernels_change_no_byte_and_no_metric(run: Run, tmp_path: Path) -> None:
    """Those of the machine against the portable ones; a set that is not there is refused."""
    for codec in ("int4", "int4-hadamard", "auto"):
        reports, artefacts = [], []
        for kernels in ("", "portable"):
            output = tmp_path / f"{codec}-{kernels}"
            arguments = ("-input", SAMPLE, "-output", output, "-codec", codec)
            report = succeed(run(*arguments, KVCOMPRESS_KERNELS=kernels))
            del report["processing_time_ms"]
            reports.append(report)
            artefacts.append(output.read_bytes())
        assert reports[0] == reports[1]
        assert artefacts[0] == artefacts[1]
    refused = run("-input", SAMPLE, "-metrics-only", KVCOMPRESS_KERNELS="mmx")
    assert refused.returncode == 1
    assert b'KVCOMPRESS_KERNELS: this machine has no kernels "mmx", only ' in refused.stderr


def test_exact_reconstruction_has_no_snr(run: Run, tmp_path: Path) -> None:
    """It is null, not infinity, which JSON has not."""
    header = b'{"x":{"dtype":"F32","shape":[64],"data_offsets":[0,256]}}'
    (tmp_path / "in").write_bytes(len(header).to_bytes(8, "little") + header + bytes(256))
    answer = succeed(run("-input", "in", "-output", "out"))
    assert (answer["snr_db"], answer["rmse"], answer["quality_level"]) == (None, 0.0, "EXCELLENT")


def test_sparsity_is_stored(run: Run, tmp_path: Path) -> None:
    """It takes the codec that has one: 3.25 bits a value at 0.5, header on top."""
    answer = succeed(run("-input", SAMPLE, "-output", "out", "-sparsity", "0.5"))
    assert answer["codec"] == "sparse:0.5,64"
    assert answer["compressed_size_bytes"] == (tmp_path / "out").stat().st_size
    assert 3.25 < answer["bits_per_value"] < 3.4
    same = succeed(run("-input", SAMPLE, "-output", "two", "-codec", "sparse"))
    assert same["payload_digest"] == answer["payload_digest"]
    refuse(
        run("-input", SAMPLE, "-output", "x", "-sparsity", "0.5", "-codec", "int8"), "-codec sparse"
    )
    refuse(run("-input", SAMPLE, "-output", "x", "-sparsity", "0.12345"), "four digits")


def test_last_stage(run: Run) -> None:
    """Both round trips, and a name that there is not."""
    sizes = {}
    for stage in ("", "lz4", "zstd"):
        flags = ("-codec", "int4", "-last-stage", stage, "-force")
        answer = succeed(run("-input", SAMPLE, "-output", "out", *flags))
        sizes[stage] = answer["compressed_size_bytes"]
        succeed(run("-verify", "out"))
        succeed(run("-decompress", "-input", "out", "-output", "back"))
    assert sizes["zstd"] < sizes[""]
    refuse(run("-input", SAMPLE, "-output", "x", "-last-stage", "gzip"), "lz4, zstd")


def test_rope_theta(run: Run) -> None:
    """The right base is found out anyway; none costs bits."""
    found, told, none = (
        succeed(run("-input", SAMPLE, "-output", "out", "-force", "-codec", "ecsq", *more))
        for more in ([], ["-rope-theta", "100000"], ["-rope-theta", "0"])
    )
    assert found["payload_digest"] == told["payload_digest"]
    assert none["compressed_size_bytes"] > told["compressed_size_bytes"]
    assert found["warnings"] == told["warnings"] == []


@pytest.mark.parametrize("codec", ["ecsq", "klt:high", "auto"])
@pytest.mark.parametrize("theta", ["0", "10000", "1000000"])
def test_wrong_rope_theta_warns(run: Run, codec: str, theta: str) -> None:
    """The message names the right base, and a tensor that was looked at."""
    flags = ("-codec", codec, "-rope-theta", theta)
    (warning,) = succeed(run("-input", SAMPLE, "-metrics-only", *flags))["warnings"]
    assert warning["code"] == "ROPE_SUSPECT"
    assert "100000 fits better as rope_theta" in warning["message"]
    assert warning["tensor"] == "layer_0_key"


def test_missed_threshold_without_a_gate_succeeds(run: Run, tmp_path: Path) -> None:
    """As before: reported in the JSON only. A group with one outlier misses all of them."""
    values = np.full(64, 0.4, np.float32)
    values[0] = 70.0
    header = b'{"x":{"dtype":"F32","shape":[64],"data_offsets":[0,256]}}'
    (tmp_path / "in").write_bytes(len(header).to_bytes(8, "little") + header + values.tobytes())
    answer = succeed(run("-input", "in", "-output", "out"))
    assert answer["quality_passed"] is False
    assert answer["quality_level"] == "POOR"


def test_gate_that_does_not_hold(run: Run, tmp_path: Path) -> None:
    """Exit status 2, the metrics, and no output."""
    gate = ("-codec", "int4", "-min-snr-db", "100")
    done = run("-input", SAMPLE, "-output", "out", *gate)
    assert done.returncode == 2
    answer = json.loads(done.stdout)
    assert answer["quality_passed"] is False
    assert any("100" in violation for violation in answer["violations"])
    assert list(tmp_path.iterdir()) == []
    assert run("-input", SAMPLE, "-metrics-only", *gate).returncode == 2


def test_gate_that_holds(run: Run) -> None:
    """A bound below every tensor's SNR."""
    succeed(run("-input", SAMPLE, "-output", "out", "-min-snr-db", "1"))


def test_gate_by_role(run: Run, tmp_path: Path) -> None:
    """Bounds of any metric, for keys and values apart; a miss names tensor and metric."""
    bounds = ["-thresholds", "max_rmse=1", "-value-thresholds", "max_rmse=0.001"]
    done = run("-input", SAMPLE, "-output", "out", "-codec", "int4", *bounds)
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []
    missed = json.loads(done.stdout)["violations"]
    assert any("layer_0_value" in sentence and "misses by" in sentence for sentence in missed)
    assert not any("_key" in sentence for sentence in missed)
    succeed(run("-input", SAMPLE, "-output", "out", "-codec", "auto", *bounds[:2]))
    refuse(run("-input", SAMPLE, "-output", "x", "-thresholds", "rmse=1"), "max_rmse")


def test_poor_quality_is_said_whoever_chose_the_codec(run: Run, tmp_path: Path) -> None:
    """In one line on standard error, of several files together; not with -quiet."""
    poor = (
        r"Warning: the quality with klt:ultra is POOR: SNR 11\.8 dB, RMSE 0\.4339; "
        "kv-compress compare "
    )
    for arguments in (("-metrics-only", SAMPLE), (SAMPLE, "-o", "out")):
        done = run(*arguments, "-codec", "klt:ultra")
        assert succeed(done)["quality_level"] == "POOR"
        (line,) = done.stderr.decode().splitlines()
        assert re.match(poor, line)
    # The hint, which names a codec that is better, takes its place.
    default = run("-input", SAMPLE, "-output", tmp_path / "first").stderr.decode()
    assert re.fullmatch(r"Hint: int4:64 misses the default thresholds in .*\n", default)
    several = run("-metrics-only", SAMPLE, SAMPLE, "-codec", "klt:ultra").stderr.decode()
    assert several.startswith("Warning: the quality of 2 of 2 files is POOR; kv-compress compare ")
    assert len(several.splitlines()) == 1
    for quiet in ((SAMPLE,), (SAMPLE, SAMPLE)):
        assert run("-metrics-only", *quiet, "-codec", "klt:ultra", "-quiet").stderr == b""
    assert b"POOR" not in run("-metrics-only", SAMPLE, "-codec", "int8").stderr
