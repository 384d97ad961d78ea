# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""compression_bridge, on the real service."""

import json
import math
import subprocess
from pathlib import Path

import pytest

import compression_bridge
from compression_bridge import (
    CompressionError,
    CompressionMetrics,
    check_cli_available,
    compress_kv_cache,
    decompress_kv_cache,
    find_cli_binary,
    get_compression_metrics,
    print_metrics_report,
)


def test_a_round_trip_gives_what_the_command_line_reports(
    bin_dir: Path, sample: Path, tmp_path: Path
) -> None:
    artefact, restored = tmp_path / "artefact.safetensors", tmp_path / "restored.safetensors"
    metrics = compress_kv_cache(str(sample), str(artefact), group_size=32)
    assert metrics.compressed_size_bytes == artefact.stat().st_size
    command = [str(bin_dir / "kv-compress"), "-input", str(sample), "-metrics-only"]
    done = subprocess.run(
        [*command, "-group-size", "32"], capture_output=True, check=True, text=True
    )
    reported = CompressionMetrics.from_dict(json.loads(done.stdout))
    for name in ("compression_ratio", "rmse", "snr_db", "cosine_similarity", "max_error"):
        assert getattr(metrics, name) == getattr(reported, name)
    assert (metrics.quality_level, metrics.passed) == (reported.quality_level, reported.passed)
    assert metrics.violations == reported.violations
    back = decompress_kv_cache(str(artefact), str(restored))
    assert back.compressed_size_bytes == metrics.compressed_size_bytes
    assert back.passed
    assert math.isnan(back.rmse)
    assert restored.stat().st_size >= metrics.original_size_bytes


def test_measuring_gives_the_same_and_writes_nothing(sample: Path, tmp_path: Path) -> None:
    written = compress_kv_cache(str(sample), str(tmp_path / "artefact"), codec="ecsq")
    measured = get_compression_metrics(str(sample), codec="ecsq")
    assert measured.compressed_size_bytes == written.compressed_size_bytes
    assert measured.tensor_snr_db == written.tensor_snr_db
    assert len(measured.tensor_snr_db) == measured.tensors == 60


def test_lossless_is_exact(sample: Path) -> None:
    metrics = get_compression_metrics(str(sample), codec="lossless")
    assert metrics.snr_db == math.inf
    assert metrics.rmse == 0
    assert metrics.passed


def test_sparsity_is_really_stored(sample: Path, tmp_path: Path) -> None:
    dense = compress_kv_cache(str(sample), str(tmp_path / "dense"))
    thin = compress_kv_cache(str(sample), str(tmp_path / "thin"), sparsity=0.5)
    assert thin.compressed_size_bytes < dense.compressed_size_bytes
    assert thin.rmse > dense.rmse


@pytest.mark.parametrize("group_size", [0, 48, -1])
def test_a_wrong_group_size_is_an_error_of_old(
    sample: Path, tmp_path: Path, group_size: int
) -> None:
    output = tmp_path / "artefact"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        compress_kv_cache(str(sample), str(output), group_size=group_size)
    assert isinstance(caught.value, CompressionError)
    assert caught.value.returncode == 1
    assert not output.exists()


def test_a_missing_input_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.safetensors")
    with pytest.raises(CompressionError, match=r"missing\.safetensors"):
        compress_kv_cache(missing, str(tmp_path / "artefact"))


def test_damage_is_found(sample: Path, tmp_path: Path) -> None:
    artefact, restored = tmp_path / "artefact", tmp_path / "restored"
    compress_kv_cache(str(sample), str(artefact))
    data = bytearray(artefact.read_bytes())
    data[-1] ^= 1
    artefact.write_bytes(data)
    with pytest.raises(CompressionError, match="DATA_LOSS"):
        decompress_kv_cache(str(artefact), str(restored))
    assert not restored.exists()


def test_the_json_of_the_command_line_is_taken() -> None:
    metrics = CompressionMetrics.from_dict(
        {
            "compression_ratio": 3.76,
            "original_size_bytes": 1048576,
            "compressed_size_bytes": 278836,
            "rmse": 0.045623,
            "snr_db": None,
            "cosine_similarity": 0.999534,
            "max_error": 0.1875,
            "quality_level": "GOOD",
            "processing_time_ms": 45.32,
            "quality_passed": True,
            "violations": [],
            "something_new": 1,
        }
    )
    assert metrics.snr_db == math.inf
    assert metrics.passed
    assert metrics.quality_level == "GOOD"


def test_the_binary_is_looked_for_where_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = tmp_path / "kv-compress"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    monkeypatch.setenv("KV_COMPRESS_PATH", str(binary))
    assert find_cli_binary() == str(binary)
    monkeypatch.delenv("KV_COMPRESS_PATH")
    monkeypatch.setattr(compression_bridge, "REPOSITORY", tmp_path / "nowhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_cli_binary() == str(binary)
    binary.unlink()
    assert not check_cli_available()
    with pytest.raises(FileNotFoundError, match="deploy/build"):
        find_cli_binary()


def test_a_report_for_people(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_metrics_report(get_compression_metrics(str(sample), verbose=True), "Sample")
    output = capsys.readouterr().out
    assert "layer_0_key: int4:64, 4.25 bits" in output
    assert "Compression Ratio:  3.71x" in output
    assert "Passed:             no" in output
