# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Draws the dashboard, as Grafana lays it out, from the answers of a real Prometheus: see picture.

The layout, queries, units, thresholds and legends are those of the committed JSON.
"""

import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt  # type: ignore[import-not-found,unused-ignore]
from matplotlib.axes import Axes  # type: ignore[import-not-found,unused-ignore]
from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore]
from matplotlib.patches import FancyBboxPatch  # type: ignore[import-not-found,unused-ignore]
from matplotlib.ticker import (  # type: ignore[import-not-found,unused-ignore]
    FuncFormatter,
    MultipleLocator,
)
from observed import (
    DASHBOARD,
    Prometheus,
    Series,
    filled_in,
    healthy_flags,
    healthy_load,
    observed,
)

# Inches: the picture's width, and the height of a step of Grafana's grid, which is 24 wide.
WIDTH, STEP, GRID = 15.0, 0.27, 24
HEADING = 0.75
GAP = 0.06
BACK, PANEL, EDGE, TEXT, MUTED = "#111217", "#181b1f", "#2c3235", "#d8d9da", "#8e9298"
COLOURS = {"green": "#73bf69", "orange": "#ff9830", "red": "#f2495c", "text": TEXT}
PALETTE = ["#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#b877d9", "#8ab8ff", "#ffa6b0", "#c0d8ff"]
LEGEND_ROWS, LEGEND_COLUMNS = 2, 4
DAY = 86400
# Units whose ticks are powers of two.
BINARY = {"bytes", "Bps"}
# Seconds until rates have settled.
WARM_UP = 20


def scaled(value: float, units: list[tuple[float, str]]) -> str:
    """In the largest unit that is not above the value; three digits."""
    size, name = next((u for u in units if abs(value) >= u[0]), units[-1])
    return f"{value / size:.3g} {name}".strip()


def seconds(value: float) -> str:
    """As Grafana shows a duration."""
    units = [(DAY, "days"), (3600, "hours"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs")]
    return scaled(value, units) if value else "0 s"


def size(value: float) -> str:
    """A number of bytes."""
    return scaled(value, [(2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")])


# How Grafana writes values, by the names of its units.
UNITS: dict[str, Callable[[float], str]] = {
    "none": lambda value: f"{value:.3g}",
    "reqps": lambda value: f"{value:.3g} req/s",
    "ops": lambda value: f"{value:.3g} ops/s",
    "percentunit": lambda value: f"{100 * value:.3g} %",
    "s": seconds,
    "bytes": size,
    "Bps": lambda value: f"{size(value)}/s",
    "dB": lambda value: f"{value:.3g} dB",
    "x": lambda value: f"{value:.3g}x",
}


def legend(template: str, labels: dict[str, str]) -> str:
    """As Grafana fills in a legend."""
    for name, value in labels.items():
        template = template.replace("{{" + name + "}}", value)
    return template


def answers(panel: dict[str, Any], prometheus: Prometheus) -> Series:
    """The series of a panel by their legends."""
    return {
        legend(target["legendFormat"], json.loads(labels)): points
        for target in panel["targets"]
        for labels, points in prometheus.query(filled_in(target["expr"])).items()
    }


def frame(figure: Figure, panel: dict[str, Any], top: float) -> tuple[float, float, float, float]:
    """Draws a panel's edge and title; the inches of its inside: left, bottom, width, height."""
    place = panel["gridPos"]
    column = WIDTH / GRID
    left, width = place["x"] * column + GAP, place["w"] * column - 2 * GAP
    height = place["h"] * STEP - 2 * GAP
    bottom = top - (place["y"] + place["h"]) * STEP + GAP
    whole = (WIDTH, figure.get_size_inches()[1])
    shape = FancyBboxPatch(
        (left / whole[0], bottom / whole[1]),
        width / whole[0],
        height / whole[1],
        boxstyle="square,pad=0",
        facecolor=PANEL,
        edgecolor=EDGE,
        linewidth=0.8,
        transform=figure.transFigure,
        zorder=-1,
    )
    figure.add_artist(shape)
    figure.text(
        (left + 0.1) / whole[0],
        (bottom + height - 0.22) / whole[1],
        panel["title"],
        color=TEXT,
        fontsize=9,
    )
    return left, bottom, width, height


def draw_number(figure: Figure, panel: dict[str, Any], top: float, series: Series) -> None:
    """The last value, in the colour of its threshold."""
    left, bottom, width, height = frame(figure, panel, top)
    defaults = panel["fieldConfig"]["defaults"]
    values = [points[-1][1] for points in series.values()]
    text, colour = "No data", MUTED
    if values:
        text, colour = UNITS[defaults["unit"]](values[0]), TEXT
        if panel["options"]["colorMode"] == "value":
            steps = defaults["thresholds"]["steps"]
            reached = [s for s in steps if s["value"] is None or values[0] >= s["value"]]
            colour = COLOURS[reached[-1]["color"]]
    figure.text(
        (left + width / 2) / WIDTH,
        (bottom + 0.42 * (height - 0.2)) / figure.get_size_inches()[1],
        text,
        color=colour,
        fontsize=21,
        ha="center",
        va="center",
    )


def style(axes: Axes, unit: str, until: float, highest: float) -> None:
    """Axes as in Grafana: values with their units, times as minutes and seconds."""
    axes.set_facecolor(PANEL)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.grid(visible=True, color=EDGE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, labelsize=7.5, length=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: UNITS[unit](value)))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda at, _: f"{int(at) // 60}:{int(at) % 60:02d}")
    )
    axes.set_xlim(0, until)
    axes.set_ylim(0, highest * 1.15 or 1)
    axes.locator_params(axis="y", nbins=5)
    if unit in BINARY and highest:
        step = 2 ** math.ceil(math.log2(highest / 4))
        axes.yaxis.set_major_locator(MultipleLocator(step))
    axes.locator_params(axis="x", nbins=6, steps=[1, 3, 6, 10])


def draw_graph(figure: Figure, panel: dict[str, Any], top: float, series: Series) -> None:
    """Lines, or areas that add up, over time."""
    left, bottom, width, height = frame(figure, panel, top)
    whole = (WIDTH, figure.get_size_inches()[1])
    # What never moves from zero would only fill the legend.
    shown = {n: p for n, p in sorted(series.items()) if any(v for _, v in p)} or dict(
        sorted(series.items())[:1]
    )
    axes = figure.add_axes(
        (
            (left + 0.75) / whole[0],
            (bottom + 0.62) / whole[1],
            (width - 0.9) / whole[0],
            (height - 0.98) / whole[1],
        )
    )
    until = max((at for points in series.values() for at, _ in points), default=1)
    highest = max((value for points in shown.values() for _, value in points), default=0)
    defaults = panel["fieldConfig"]["defaults"]
    if defaults.get("custom", {}).get("stacking"):
        times = sorted({at for points in shown.values() for at, _ in points})
        rows = [[dict(points).get(at, 0) for at in times] for points in shown.values()]
        axes.stackplot(times, rows, labels=shown, colors=PALETTE, alpha=0.75)
        highest = max(map(sum, zip(*rows, strict=True)), default=0)
    else:
        for (name, points), colour in zip(shown.items(), PALETTE * 4, strict=False):
            axes.plot(*zip(*points, strict=True), label=name, color=colour, linewidth=1.3)
    style(axes, defaults["unit"], until, highest)
    if not series:
        axes.text(0.5, 0.5, "No data", color=MUTED, ha="center", transform=axes.transAxes)
    handles, names = axes.get_legend_handles_labels()
    most = LEGEND_ROWS * LEGEND_COLUMNS
    axes.legend(
        handles[:most],
        [name if len(name) < 20 else name[:18] + "…" for name in names[:most]],
        loc="upper left",
        bbox_to_anchor=(-0.13, -0.13),
        ncols=LEGEND_COLUMNS,
        fontsize=7,
        frameon=False,
        labelcolor=TEXT,
        handlelength=1,
        columnspacing=1,
        borderpad=0,
    )


def draw(board: dict[str, Any], prometheus: Prometheus, caption: str) -> Figure:
    """All panels of a dashboard, in their places."""
    every = board["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in every)
    top = rows * STEP
    figure = plt.figure(figsize=(WIDTH, top + HEADING), facecolor=BACK)
    figure.text(0.012, 1 - 0.3 / (top + HEADING), board["title"], color=TEXT, fontsize=15)
    figure.text(0.012, 1 - 0.58 / (top + HEADING), caption, color=MUTED, fontsize=9)
    for panel in every:
        if panel["type"] == "row":
            middle = top - (panel["gridPos"]["y"] + 0.5) * STEP
            where = (0.012, middle / (top + HEADING))
            figure.text(*where, panel["title"], color=TEXT, fontsize=11, va="center")
        elif panel["type"] == "stat":
            draw_number(figure, panel, top, answers(panel, prometheus))
        else:
            draw_graph(figure, panel, top, answers(panel, prometheus))
    return figure


def main() -> None:
    """Runs two servers under a load that they bear for a while, and draws."""
    target, duration = Path(sys.argv[1]), float(sys.argv[2])
    binary = shutil.which("prometheus") or os.environ["PROMETHEUS"]
    with (
        tempfile.TemporaryDirectory() as name,
        observed(binary, Path(name), healthy_flags, healthy_load) as prometheus,
    ):
        time.sleep(WARM_UP)
        prometheus.begun = time.time()
        time.sleep(duration)
        caption = (
            f"Two servers for {duration:.0f} s on {os.cpu_count()} cores, "
            f"{datetime.now(UTC):%Y-%m-%d}; minutes and seconds on the x axis. Drawn from "
            "Prometheus's answers to the dashboard's queries, not by Grafana."
        )
        board = json.loads(DASHBOARD.read_text())
        draw(board, prometheus, caption).savefig(target, dpi=96, facecolor=BACK)


if __name__ == "__main__":
    main()
