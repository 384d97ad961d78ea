# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Draws the dashboard's panels from the answers of a real Prometheus: see picture."""

import json
import os
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt  # type: ignore[import-not-found,unused-ignore]
from matplotlib.axes import Axes  # type: ignore[import-not-found,unused-ignore]
from observed import Prometheus, filled_in, observed, panels

COLUMNS = 3
MAX_LEGEND = 8


def legend(template: str, labels: dict[str, str]) -> str:
    """As Grafana fills in a legend."""
    for name, value in labels.items():
        template = template.replace("{{" + name + "}}", value)
    return template


def draw(axes: Axes, panel: dict[str, Any], prometheus: Prometheus) -> None:
    """One panel: its series over time, numbers too."""
    axes.set_title(panel["title"], fontsize=9, loc="left")
    axes.set_ylabel(panel["fieldConfig"]["defaults"].get("unit", ""), fontsize=7)
    series = {
        legend(target["legendFormat"], json.loads(labels)): points
        for target in panel["targets"]
        for labels, points in prometheus.query(filled_in(target["expr"])).items()
    }
    # What never moves from zero would only fill the legend.
    shown = {n: p for n, p in sorted(series.items()) if any(v for _, v in p)} or series
    stacked = panel["fieldConfig"]["defaults"].get("custom", {}).get("stacking")
    if stacked:
        times = sorted({at for points in shown.values() for at, _ in points})
        rows = [[dict(points).get(at, 0) for at in times] for points in shown.values()]
        axes.stackplot(times, rows, labels=shown)
    else:
        for name, points in shown.items():
            axes.plot([at for at, _ in points], [value for _, value in points], label=name)
    low, high = axes.get_ylim()
    axes.set_ylim(min(0, low), high * 1.05 if high > 0 else high)
    axes.tick_params(labelsize=7)
    axes.grid(visible=True, alpha=0.3)
    handles, names = axes.get_legend_handles_labels()
    axes.legend(handles[:MAX_LEGEND], names[:MAX_LEGEND], fontsize=6, loc="best")


def main() -> None:
    """Loads servers for a while, and draws."""
    target, seconds = Path(sys.argv[1]), float(sys.argv[2])
    binary = shutil.which("prometheus") or os.environ["PROMETHEUS"]
    with tempfile.TemporaryDirectory() as name, observed(binary, Path(name)) as prometheus:
        time.sleep(seconds)
        chosen = panels()
        rows = -(-len(chosen) // COLUMNS)
        figure, grid = plt.subplots(rows, COLUMNS, figsize=(15, 2.3 * rows), layout="constrained")
        for axes, panel in zip(grid.flat, chosen, strict=False):
            draw(axes, panel, prometheus)
        for axes in list(grid.flat)[len(chosen) :]:
            axes.set_axis_off()
        figure.suptitle(
            f"The dashboard's panels over {seconds:.0f} s, seconds on the x axis. Two servers, "
            f"{os.cpu_count()} cores, {datetime.now(UTC):%Y-%m-%d}. Drawn from Prometheus's "
            "answers by tests/deploy/picture, not by Grafana.",
            fontsize=9,
        )
        figure.savefig(target, dpi=80)


if __name__ == "__main__":
    main()
