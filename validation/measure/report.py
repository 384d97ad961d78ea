# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The study's results as JSON and as a table in Markdown."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from measure.scores import Estimate, Measurement, ratio, summarize

REFERENCE = "int4"
"""The row that KL divergences are set in relation to."""


def summary_of(
    measurements: Sequence[Measurement], reference: Sequence[Measurement]
) -> dict[str, Any]:
    """Returns the totals of a row over all windows.

    Sizes are pooled; the KL divergence is also given as a share of the reference's.
    """
    total = sum(each.bytes for each in measurements)
    elements = sum(each.elements for each in measurements)
    tensors = sum(each.tensors for each in measurements)
    summary = asdict(summarize([each.score for each in measurements]))
    relative = ratio([each.score.kl for each in measurements], [e.score.kl for e in reference])
    return {
        "bits_per_value": 8 * total / elements,
        "ratio": 2 * elements / total,
        "within_thresholds": sum(each.passed for each in measurements) / tensors,
        "kl_of_reference": asdict(relative),
        **summary,
    }


def document(
    setup: Mapping[str, Any],
    rows: Sequence[Mapping[str, str]],
    results: Mapping[str, Sequence[Measurement]],
    last_stages: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Returns everything as one value that JSON can write; infinities become null.

    Args:
        setup: Machine, date, data, command.
        rows: Name, family and version of each row.
        results: Measurements by the row's name, one for each window.
        last_stages: Sizes with byte compressors.
    """
    reference = results[REFERENCE]
    written = [
        {
            **row,
            "summary": summary_of(results[row["name"]], reference),
            "windows": [asdict(each) for each in results[row["name"]]],
        }
        for row in rows
    ]
    value = {"setup": dict(setup), "rows": written, "last_stages": list(last_stages)}
    finite: dict[str, Any] = _finite(value)
    return finite


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def markdown(study: Mapping[str, Any]) -> str:
    """Returns the document as a page."""
    setup = study["setup"]
    lines = [
        "<!-- Written by validation/codec_study.py; do not edit. -->",
        "# Rate and distortion on a real model",
        "",
        f"{setup['model']}, {setup['windows']} windows of text: the model reads {setup['prefix']} "
        f"tokens; its cache (BF16) is compressed, decompressed and put back; the next "
        f"{setup['continuation']} tokens are scored against the same model with its own cache.",
        "",
        f"- Date: {setup['date']}. Machine: {setup['machine']}.",
        f"- Command: `{setup['command']}`. Took {setup['minutes']:.0f} minutes"
        + (", with what earlier runs had kept." if setup["kept"] else "."),
        "- Software: " + ", ".join(setup["software"]) + ".",
        "- Text: " + "; ".join(setup["texts"]) + ".",
        *([f"- Profile: {setup['profile']}."] if setup.get("profile") else []),
        "",
        *table(study["rows"]),
        "",
        "`bits` and `ratio` (against 16 bits) count everything: for KV Compress the whole file, "
        "for the others every tensor that their packages keep. KL is the mean KL divergence "
        "between the model's next-token distributions with its own cache and with the decoded "
        f"one, in nats per token; `of {REFERENCE}` is its share of the reference's. ± is one "
        "standard error over windows. `in bounds` is the share of tensors with RMSE < 0.10, max "
        "error < 0.5, SNR > 18 dB and cosine > 0.99. `SNR` is over all values of a window, in the "
        "mean over windows.",
        "",
        "![Rate and distortion](codec_study.png)",
    ]
    if study["last_stages"]:
        lines += ["", "## Last stages", "", *_last_stages(study["last_stages"])]
    return "\n".join(lines) + "\n"


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the lines of a table of the document's rows, the smallest first."""
    head = ["codec", "by", "bits", "ratio", "KL", "of int4", "ΔNLL", "Δ perplexity", "top-1"]
    head += ["in bounds", "SNR"]
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for row in sorted(rows, key=lambda row: float(row["summary"]["bits_per_value"])):
        summary = row["summary"]
        kl, nll = _estimate(summary["kl"]), _estimate(summary["delta_nll"])
        delta, share = _estimate(summary["delta_perplexity"]), summary["kl_of_reference"]["value"]
        name = f"`{row['name']}`" if row["family"] == "KV Compress" else row["name"]
        lines.append(
            f"| {name} | {row['version']} | {summary['bits_per_value']:.4f} "
            f"| {summary['ratio']:.2f}x | {_pair(kl, 6)} | {_share(share)} | {_pair(nll, 4, '+')} "
            f"| {_pair(delta, 4, '+')} | {summary['top1']['value']:.1%} "
            f"| {summary['within_thresholds']:.0%} | {_snr(row['windows'])} |"
        )
    return lines


def _estimate(value: Mapping[str, float | None]) -> Estimate:
    error = value["error"]
    return Estimate(float(value["value"] or 0), math.nan if error is None else error)


def _pair(value: Estimate, digits: int, sign: str = "") -> str:
    if value.value == 0:
        return "0"
    return f"{value.value:{sign}.{digits}f} ± {value.error:.{digits}f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}" if value < 0.1 else f"{value:.0%}"


def _snr(windows: Sequence[Mapping[str, Any]]) -> str:
    values = [window["snr_db"] for window in windows]
    return "exact" if None in values else f"{sum(values) / len(values):.1f} dB"


def _last_stages(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    stages = sorted({row["stage"] for row in rows} - {""})
    codecs = dict.fromkeys(row["codec"] for row in rows)
    ratios = {(row["codec"], row["stage"]): row["ratio"] for row in rows}
    lines = [
        f"Whole-file ratios on {rows[0]['windows']} of the windows, one of each text. What the "
        "model sees is the same.",
        "",
        "| codec | without | " + " | ".join(stages) + " |",
        "| --- | --- |" + " --- |" * len(stages),
    ]
    for codec in codecs:
        cells = [f"{ratios[codec, stage]:.3f}x" for stage in ("", *stages)]
        lines.append(f"| `{codec}` | " + " | ".join(cells) + " |")
    return lines
