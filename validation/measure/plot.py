# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Pictures of the study and of a validation. Needs matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.transforms import Bbox

from measure.result import snr_by_layer

OWN = "KV Compress"
_COLOURS = {
    OWN: "#0b5fa5",
    "optimum-quanto": "#d1702a",
    "hqq": "#8a5fb0",
    "ggml": "#3d8f5f",
    "transformers": "#a8873a",
    "vLLM": "#b03a5b",
    "LMCache": "#2b8f9b",
}
_MARKERS = {
    **{OWN: "o", "optimum-quanto": "s", "hqq": "D", "ggml": "^", "transformers": "v"},
    **{"vLLM": "P", "LMCache": "X"},
}
_WIDE = (0.25, 0.35, 0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8, 12, 16)
_TICKS = (1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 10, 12, 16)
_MARKER = 9  # half of the size of a point with its margin, in pixels
# Where a name may be: pixels above its point, and on which side; the last if nothing is free.
_PLACES = tuple((up, side) for up in (0, 11, -11, 22, -22, 33, -33, 44, -44) for side in (1, -1))


def plot(study: Mapping[str, Any], path: Path) -> None:
    """Draws every lossy row of a document of measure.report into a PNG file."""
    rows = [row for row in study["rows"] if row["summary"]["kl"]["value"] > 0]
    figure, axes = plt.subplots(figsize=(10, 6.4), dpi=150)
    for family in dict.fromkeys(row["family"] for row in rows):
        _family(axes, family, [row for row in rows if row["family"] == family])
    for codec in dict.fromkeys(_codec(row) for row in rows if row["family"] == OWN):
        curve = sorted(_point(row) for row in rows if _codec(row) == codec)
        if len(curve) > 1:  # it has presets
            x, y = zip(*curve, strict=True)
            axes.plot(x, y, color=_COLOURS[OWN], linewidth=1.6, alpha=0.5, zorder=2)
    setup = study["setup"]
    figure.suptitle(f"KV caches of {setup['model']}: what the model notices, against size", x=0.53)
    axes.set_title(
        f"{setup['windows']} windows of text, {setup['prefix']} tokens compressed, "
        f"{setup['continuation']} scored; bars: one standard error; lower left is better",
        fontsize=9,
    )
    _axes(axes, [_point(row)[0] for row in rows])
    left, right = axes.get_xlim()
    axes.set_xlim(right=right * (right / left) ** 0.11)  # names need room
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    figure.tight_layout()
    _names(axes, rows)
    figure.savefig(path)
    plt.close(figure)


def plot_validation(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws SNR by layer, and size against KL, into a PNG file.

    Args:
        results: The fields of ValidationResult, of each codec.
        path: The file.
    """
    figure, (snr, rate) = plt.subplots(1, 2, figsize=(12, 5), dpi=120)
    for i, result in enumerate(results):
        colour, codec = f"C{i}", result["codec"]
        for part, style in (("key", "-"), ("value", ":")):
            values = snr_by_layer(result["layer_snr_db"], part)
            snr.plot(values, style, color=colour, label=f"{codec}, {part}s", linewidth=1.4)
        bits, kl = result["bits_per_value"], result["kl"]
        rate.errorbar(bits, kl, yerr=result["kl_error"], marker="o", color=colour)
        rate.annotate(
            codec, (bits, kl), xytext=(7, 5), textcoords="offset points", color=colour, fontsize=9
        )
    snr.axhline(18, color="#888888", linewidth=0.8, linestyle="--")
    snr.set_xlabel("layer")
    snr.set_ylabel("signal-to-noise ratio, dB")
    snr.set_title("What the tensors lose (dashed: the usual threshold)", fontsize=10)
    snr.legend(frameon=False, fontsize=8, ncols=2)
    snr.grid(color="#dddddd", linewidth=0.6)
    rate.set_title("What the model notices", fontsize=10)
    _axes(rate, [result["bits_per_value"] for result in results])
    if not any(result["kl"] > 0 for result in results):
        rate.set_yscale("linear")
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def plot_presets(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws the presets of codecs on models, before and after, into a PNG file.

    Args:
        rows: Points as preset_curve.py has them.
        path: The file.
    """
    models = list(dict.fromkeys(row["model"] for row in rows))
    figure, panels = plt.subplots(
        1, len(models), figsize=(5.6 * len(models), 5), dpi=130, sharey=True, squeeze=False
    )
    for axes, model in zip(panels[0], models, strict=True):
        for codec, colour in (("ecsq", "#d1702a"), ("klt", "#0b5fa5")):
            for state, style in (("before", "o:"), ("after", "o-")):
                curve = sorted(
                    (row["ratio"], row["of_reference"], row["preset"])
                    for row in rows
                    if (row["model"], row["codec"], row["state"]) == (model, codec, state)
                )
                if not curve:
                    continue
                ratios, shares, _ = zip(*curve, strict=True)
                fill = colour if state == "after" else "white"
                axes.plot(ratios, shares, style, color=colour, mfc=fill, label=f"{codec}, {state}")
                for x, y, name in curve if state == "after" else ():
                    axes.annotate(
                        name, (x, y), xytext=(5, -11), textcoords="offset points", fontsize=8
                    )
        axes.set_title(model, fontsize=10)
        axes.set_xscale("log")
        axes.set_yscale("log")
        ticks = [4, 5, 6, 8, 10, 12, 16, 20]
        axes.set_xticks(ticks, [f"{x}x" for x in ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("ratio against 16 bits")
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.axhline(1, color="#888888", linewidth=0.8, linestyle="--")
    panels[0][0].set_ylabel("KL divergence, as a share of that of int4")
    panels[0][0].legend(frameon=False, fontsize=9)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def _axes(axes: Any, bits: Sequence[float]) -> None:
    """Makes both axes logarithmic, and labels them."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(min(bits) * 0.93, max(bits) * 1.13)
    low, high = axes.get_xlim()
    ticks = [x for x in (_TICKS if high < 10 * low else _WIDE) if low <= x <= high]
    axes.set_xticks(ticks, [f"{x:g}\n{16 / x:.3g}x" for x in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("bits per value, everything counted; ratio against 16 bits")
    axes.set_ylabel("KL divergence from the uncompressed cache, nats per token")
    axes.grid(which="major", color="#d9d9d9", linewidth=0.7)
    axes.grid(which="minor", axis="y", color="#eeeeee", linewidth=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _codec(row: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the codec of a row, and what a preset is followed by: a profile."""
    preset, _, more = row["name"].partition(", ")
    return preset.split()[0], more


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


def _names(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes names next to their points, from the bottom up, where nothing else is."""
    figure = axes.figure
    renderer, page = figure.canvas.get_renderer(), figure.bbox
    points = [axes.transData.transform(_point(row)) for row in rows]
    taken = [
        Bbox.from_bounds(x - _MARKER, y - _MARKER, 2 * _MARKER, 2 * _MARKER) for x, y in points
    ]
    for (x, y), row in sorted(zip(points, rows, strict=True), key=lambda each: float(each[0][1])):
        name = axes.text(
            *(0, 0, row["name"]),
            transform=None,
            va="center",
            fontsize=8,
            color=_COLOURS.get(row["family"], "#555555"),
            fontweight="bold" if row["family"] == OWN else "normal",
        )
        for up, side in _PLACES:
            name.set(
                ha="left" if side > 0 else "right", position=(x + 1.7 * side * _MARKER, y + up)
            )
            box = name.get_window_extent(renderer)
            inside = page.x0 < box.x0 and box.x1 < page.x1
            if inside and not any(box.overlaps(other) for other in taken):
                break
        taken.append(box)
