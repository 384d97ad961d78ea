# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The picture of profile_sweep.py. Needs matplotlib."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from measure.profile_bench import REFERENCE, Row, mean
from measure.profile_report import BY_TOKENS, TARGET, TITLES, names_of, points, ratio_at

_COLOUR = "#0b5fa5"


def _by_tokens(axes: Any, rows: Sequence[Row], part: str) -> None:
    """Ratios by the tokens of a cache, chunk or block."""
    own = [row for row in rows if row["part"] == part and "kl" in row]
    tokens = sorted({row["tokens"] for row in own})
    for i, name in enumerate(dict.fromkeys(row["name"] for row in own if row["name"] != REFERENCE)):
        ratios = [
            mean([r for r in own if (r["name"], r["tokens"]) == (name, count)], "ratio")
            for count in tokens
        ]
        style = "o-" if name.startswith("profile") else "s:"
        axes.plot(tokens, ratios, style, color=f"C{i}", label=name, markersize=4)
    axes.set_xscale("log", base=2)
    axes.set_xticks(tokens, [f"{count:,}" for count in tokens])
    axes.set_ylim(0, 1.4 * axes.get_ylim()[1])
    axes.set_title(BY_TOKENS[part], fontsize=10)
    axes.legend(frameon=False, fontsize=7, ncols=3, loc="upper left")


def _bars(axes: Any, rows: Sequence[Row], part: str) -> None:
    """Ratios of variants at one divergence."""
    names = names_of(rows, part)
    ratios = [ratio_at(points(rows, part, name)) for name in names]
    bars = axes.bar(range(len(names)), [ratio or 0 for ratio in ratios], color=_COLOUR, width=0.6)
    labels = ["not reached" if ratio is None else f"{ratio:.1f}x" for ratio in ratios]
    axes.bar_label(bars, labels, fontsize=8)
    axes.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names], fontsize=8)
    axes.set_title(TITLES[part][0], fontsize=10)
    axes.margins(y=0.15)


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draws every part that was measured into a PNG file."""
    parts = [part for part in BY_TOKENS if any(r["part"] == part and "kl" in r for r in rows)]
    parts += [part for part in TITLES if names_of(rows, part)]
    figure, panels = plt.subplots(
        (len(parts) + 1) // 2, 2, figsize=(11, 2.9 * ((len(parts) + 1) // 2)), dpi=120
    )
    for axes in panels.flat[len(parts) :]:
        axes.set_visible(False)
    for axes, part in zip(panels.flat, parts, strict=False):
        if part in BY_TOKENS:
            _by_tokens(axes, rows, part)
        else:
            _bars(axes, rows, part)
        axes.set_ylabel("ratio")
        axes.grid(color="#dddddd", linewidth=0.6, axis="y")
        axes.set_axisbelow(True)
    figure.suptitle(f"Profiles: ratio, in bars at {TARGET:.0%} of the KL divergence of int4")
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
