# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Draws what every preset costs on several models, before and after a change of their rules.

    PYTHON=$(deploy/python-env --no-deps validation/requirements.txt)/bin/python
    $PYTHON validation/preset_curve.py --before A.json B.json --after C.json D.json

The files are what codec_study.py wrote, one for each model. KL divergences are given as shares of
that of `int4` on the same windows, so that models compare. See README.md next to this file.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from codec_study import RESULTS
from measure import plot
from measure.report import REFERENCE

CODECS = ("ecsq", "klt")


def points(study: Mapping[str, Any], state: str) -> Iterator[dict[str, Any]]:
    """Yields the results of the presets of a study: model, state, codec, preset, ratio, share."""
    for row in study["rows"]:
        codec, _, preset = row["name"].partition(" ")
        if codec not in CODECS or not preset or " " in preset:
            continue
        summary = row["summary"]
        yield {
            "model": study["setup"]["model"],
            "windows": study["setup"]["windows"],
            "state": state,
            "codec": codec,
            "preset": preset,
            "ratio": summary["ratio"],
            "kl": summary["kl"]["value"],
            "of_reference": summary["kl_of_reference"]["value"],
            "error": summary["kl_of_reference"]["error"],
        }


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the points as a table in Markdown, before next to after."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    found = {(row["model"], row["state"], row["codec"], row["preset"]): row for row in rows}
    presets = list(dict.fromkeys((row["codec"], row["preset"]) for row in rows))
    heads = [f"{model}, {state}" for model in models for state in ("before", "after")]
    lines = [
        "<!-- Written by validation/preset_curve.py; do not edit. -->",
        "# What a preset means on two models",
        "",
        f"Ratio against 16 bits, and KL divergence as a share of that of `{REFERENCE}` on the same "
        "windows; ± is one standard error.",
        "",
        "| preset | " + " | ".join(heads) + " |",
        "| --- |" + " --- |" * len(heads),
    ]
    for codec, preset in presets:
        cells = []
        for model in models:
            for state in ("before", "after"):
                row = found.get((model, state, codec, preset))
                cells.append(_cell(row) if row else "-")
        lines.append(f"| `{codec} {preset}` | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", "![Presets](presets.png)", ""])


def _cell(row: Mapping[str, Any]) -> str:
    error = "" if row["error"] is None else f" ± {row['error']:.0%}"
    return f"{row['ratio']:.2f}x, {row['of_reference']:.0%}{error}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads studies and writes points, table and picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--before", type=Path, nargs="+", required=True, help="studies, by model")
    parser.add_argument("--after", type=Path, nargs="+", required=True, help="studies, by model")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the results")
    parsed = parser.parse_args(arguments)
    rows = [
        point
        for state, paths in (("before", parsed.before), ("after", parsed.after))
        for path in paths
        for point in points(json.loads(path.read_text()), state)
    ]
    parsed.output.mkdir(parents=True, exist_ok=True)
    (parsed.output / "presets.json").write_text(json.dumps(rows, indent=1) + "\n")
    (parsed.output / "presets.md").write_text(page(rows))
    plot.plot_presets(rows, parsed.output / "presets.png")


if __name__ == "__main__":
    main()
