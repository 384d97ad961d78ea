# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The study's picture: KL divergence against bits per value. Needs matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402

OWN = "KV Compress"
_COLOURS = {
    OWN: "#0b5fa5",
    "optimum-quanto": "#d1702a",
    "hqq": "#8a5fb0",
    "ggml": "#3d8f5f",
    "transformers": "#a8873a",
}
_MARKERS = {OWN: "o", "optimum-quanto": "s", "hqq": "D", "ggml": "^", "transformers": "v"}
_BEST = "ecsq"


def plot(study: Mapping[str, Any], path: Path) -> None:
    """Draws every lossy row of a document of measure.report into a PNG file."""
    rows = [row for row in study["rows"] if row["summary"]["kl"]["value"] > 0]
    figure, axes = plt.subplots(figsize=(10, 6.2), dpi=150)
    for family in dict.fromkeys(row["family"] for row in rows):
        _family(axes, family, [row for row in rows if row["family"] == family])
    curve = sorted(_point(row) for row in rows if row["name"].split()[0] == _BEST)
    axes.plot(*zip(*curve, strict=True), color=_COLOURS[OWN], linewidth=1.6, alpha=0.55, zorder=2)
    _labels(axes, rows)
    axes.set_yscale("log")
    axes.set_xlabel("bits per value, everything counted")
    axes.set_ylabel("KL divergence from the uncompressed cache, nats per token")
    setup = study["setup"]
    axes.set_title(
        f"KV caches of {setup['model']}: what the model notices, against size\n"
        f"{setup['windows']} windows, {setup['prefix']} tokens compressed, "
        f"{setup['continuation']} scored; bars: one standard error; lower left is better",
        fontsize=11,
        loc="left",
    )
    axes.grid(which="major", color="#d9d9d9", linewidth=0.7)
    axes.grid(which="minor", axis="y", color="#eeeeee", linewidth=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    top = axes.secondary_xaxis(1.0, functions=(_ratio, _ratio))
    top.set_xticks([2, 2.5, 3, 4, 5, 6, 8], [f"{x:g}x" for x in (2, 2.5, 3, 4, 5, 6, 8)])
    top.set_xlabel("ratio against 16 bits", fontsize=9)
    top.tick_params(labelsize=8)
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def _ratio(bits: Any) -> Any:
    """Bits per value and ratio against 16 bits are each other's inverse."""
    return 16 / bits


def _point(row: Mapping[str, Any]) -> tuple[float, float]:
    summary = row["summary"]
    return summary["bits_per_value"], summary["kl"]["value"]


def _family(axes: Any, family: str, rows: Sequence[Mapping[str, Any]]) -> None:
    points = [_point(row) for row in rows]
    errors = [row["summary"]["kl"]["error"] or 0 for row in rows]
    axes.errorbar(
        *zip(*points, strict=True),
        yerr=errors,
        linestyle="none",
        marker=_MARKERS.get(family, "x"),
        markersize=7 if family == OWN else 6,
        color=_COLOURS.get(family, "#555555"),
        elinewidth=1,
        label=family,
        zorder=4 if family == OWN else 3,
    )


def _labels(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes the names, to the right of their points, or to the left where one is in the way."""
    for row in rows:
        x, y = _point(row)
        crowded = any(
            other is not row and 0 < _point(other)[0] - x < 0.9 and 0.75 < _point(other)[1] / y < 1.33
            for other in rows
        )
        axes.annotate(
            row["name"],
            (x, y),
            xytext=(-8 if crowded else 8, 0),
            textcoords="offset points",
            ha="right" if crowded else "left",
            va="center",
            fontsize=8,
            color=_COLOURS.get(row["family"], "#555555"),
            fontweight="bold" if row["family"] == OWN else "normal",
        )
