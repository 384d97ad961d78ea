#!/usr/bin/env python3
# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Which codec is fastest over a link: a table from the costs in CAPACITY.md.

    link.py [--gigabits N...] [--cores N...]

Seconds for a GB of cache. Needs Python alone.
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parent / "CAPACITY.md"
# By the names that the page has for them.
CODECS = {
    "lossless": "`lossless`",
    "int4": "`int4`",
    "ecsq:contract": "`ecsq`, contract",
    "klt:contract": "`klt`, contract",
}
GIGABITS = (1.0, 10.0, 25.0, 100.0)
CORES = (2, 8, 16)


class Cost(NamedTuple):
    """Of a codec: its ratio, and CPU seconds for a GB of cache."""

    ratio: float
    compress: float
    restore: float


class Times(NamedTuple):
    """Seconds for a GB of cache."""

    # Received and restored, one after the other.
    restored: float
    # The same, with decoding while the rest arrives.
    overlapped: float
    # Compressed, sent and restored, one after the other.
    sent: float


RAW = Cost(1, 0, 0)


def costs(page: str) -> dict[str, Cost]:
    """Those in the first table of the page."""
    found = {}
    for codec, name in CODECS.items():
        row = rf"(?m)^\| {re.escape(name)} \| ([\d.]+)x \| ([\d.]+) \| ([\d.]+) \|"
        match = re.search(row, page)
        if match is None:
            raise SystemExit(f"no costs of {codec} in {PAGE.name}")
        found[codec] = Cost(*map(float, match.groups()))
    return found


def times(cost: Cost, gigabits: float, cores: int) -> Times:
    """Over a link, with as many cores for the call at either end."""
    transfer = 8 / (gigabits * cost.ratio)
    restore = cost.restore / cores
    restored = transfer + restore
    return Times(restored, max(transfer, restore), cost.compress / cores + restored)


def fastest(found: Mapping[str, Times], stage: int) -> str:
    """The name whose seconds at this place of Times are fewest."""
    return min(found, key=lambda name: found[name][stage])


def table(known: Mapping[str, Cost], gigabits: Sequence[float], cores: Sequence[int]) -> list[str]:
    """Lines of Markdown."""
    named = {"raw": RAW, **{f"`{name}`": cost for name, cost in known.items()}}
    head = ["Gb/s", "cores", *named, "fastest", "overlapped", "compressed first"]
    lines = [head, ["---"] * len(head)]
    for link in gigabits:
        for count in cores:
            found = {name: times(cost, link, count) for name, cost in named.items()}
            seconds = [f"{each.restored:.2f}" for each in found.values()]
            best = [fastest(found, stage) for stage in range(len(Times._fields))]
            lines.append([f"{link:g}", str(count), *seconds, *best])
    return [f"| {' | '.join(cells)} |" for cells in lines]


def main() -> None:
    """Prints the table for the links and cores that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gigabits", nargs="+", type=float, default=GIGABITS, metavar="N")
    parser.add_argument("--cores", nargs="+", type=int, default=CORES, metavar="N")
    flags = parser.parse_args()
    if min(*flags.gigabits, *flags.cores) <= 0:
        parser.error("links and cores are numbers above 0")
    print(*table(costs(PAGE.read_text()), flags.gigabits, flags.cores), sep="\n")


if __name__ == "__main__":
    main()
