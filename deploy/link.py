#!/usr/bin/env python3
# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Which codec brings a cache over a link soonest: a table from the costs in CAPACITY.md.

    link.py [--gigabits N...] [--cores N...] [--tokens N] [--token-bytes N] [--tensors N]
            [--prefill N] [--compressing] [--plot PNG]

Seconds until a prefix that is stored compressed is restored, of the fastest way, and how many
times sooner that is than sending it as it is. Decoding goes on while the rest arrives. Without
flags the prefix is one of 32,768 tokens of Llama-3-8B. Needs Python alone, and matplotlib for a
plot.
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).resolve().parent / "CAPACITY.md"
# By the names that the page has for them.
CODECS = {
    "lossless": "`lossless`",
    "int4": "`int4`",
    "ecsq:contract": "`ecsq`, contract",
    "klt:contract": "`klt`, contract",
}
GIGABITS = (1.0, 10.0, 25.0, 100.0, 400.0)
CORES = (1, 2, 4, 8, 16, 32, 64)
# Llama-3-8B: keys and values of 32 layers, each of 8 heads with 128 channels of 16 bits.
TOKENS, TOKEN_BYTES, TENSORS = 32768, 131072, 64


class Cost(NamedTuple):
    """Of a codec: its ratio, and CPU seconds for a GB of cache."""

    ratio: float
    compress: float
    restore: float


class Prefix(NamedTuple):
    """What is restored: its size in bytes, and in how many tensors."""

    size: int
    tensors: int


class Best(NamedTuple):
    """The fastest way, its seconds, and those of sending the prefix as it is."""

    way: str
    seconds: float
    raw: float


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


def overlapped(stages: Sequence[float], pieces: int) -> float:
    """Seconds of stages through which pieces of equal size go one after the other.

    The slowest stage works all the time; the others add one piece each, the first or the last.
    """
    return max(stages) + (sum(stages) - max(stages)) / pieces


def seconds(
    cost: Cost, prefix: Prefix, gigabits: float, cores: float, *, compressing: bool = False
) -> float:
    """Until the prefix is restored, with so many cores at either end.

    Args:
        cost: Of the codec.
        prefix: What goes over the link.
        gigabits: The link, in 10^9 bits a second.
        cores: That work on this call; they share it fully, which takes a tensor each or blocks.
        compressing: Whether it is still to be compressed.
    """
    gigabytes = prefix.size / 1e9
    stages = [8 * gigabytes / cost.ratio / gigabits, cost.restore * gigabytes / cores]
    if compressing:
        stages.append(cost.compress * gigabytes / cores)
    return overlapped(stages, prefix.tensors)


def fastest(
    known: Mapping[str, Cost],
    prefix: Prefix,
    gigabits: float,
    cores: int,
    *,
    compressing: bool,
    computed: float | None,
) -> Best:
    """The way that takes fewest seconds; `computed` is what the engine takes without a cache."""
    raw = seconds(RAW, prefix, gigabits, cores)
    ways = {"raw": raw}
    for name, cost in known.items():
        ways[name] = seconds(cost, prefix, gigabits, cores, compressing=compressing)
    if computed is not None:
        ways["computed"] = computed
    way = min(ways, key=lambda each: ways[each])
    return Best(way, ways[way], raw)


def table(
    best: Sequence[Sequence[Best]], gigabits: Sequence[float], cores: Sequence[int]
) -> list[str]:
    """Lines of Markdown."""
    head = ["Gb/s", "raw", *(f"{count} core{'s' * (count > 1)}" for count in cores)]
    lines = [head, ["---"] * len(head)]
    for link, row in zip(gigabits, best, strict=True):
        cells = [
            each.way
            if each.way == "raw"
            else f"{_code(each.way)} {each.seconds:.2f} s, {each.raw / each.seconds:.1f}x"
            for each in row
        ]
        lines.append([f"{link:g}", f"{row[0].raw:.2f} s", *cells])
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _code(way: str) -> str:
    """The name of a codec as Markdown has it."""
    return way if way == "computed" else f"`{way}`"


def plot(
    best: Sequence[Sequence[Best]],
    gigabits: Sequence[float],
    cores: Sequence[int],
    title: str,
    path: Path,
) -> None:
    """Draws the table: a colour for each way, with its name and what it gains."""
    from matplotlib import pyplot  # type: ignore[import-not-found,unused-ignore]

    colours = {"raw": "#e8e8e8", "computed": "#c9b6e4"}
    palette = ("#f2c9a1", "#a9d6a0", "#9cc7e8", "#f3a6a6")
    colours.update(zip(CODECS, palette, strict=True))
    figure: Any
    axes: Any
    figure, axes = pyplot.subplots(figsize=(1.35 * len(cores) + 1.6, 0.7 * len(gigabits) + 1.5))
    for y, row in enumerate(best):
        for x, each in enumerate(row):
            axes.add_patch(
                pyplot.Rectangle((x, y), 1, 1, facecolor=colours[each.way], edgecolor="white")
            )
            gain = "" if each.way == "raw" else f"\n{each.raw / each.seconds:.1f}x sooner"
            axes.text(x + 0.5, y + 0.5, f"{each.way}{gain}", ha="center", va="center", fontsize=8)
    axes.set_xlim(0, len(cores))
    axes.set_ylim(0, len(gigabits))
    axes.set_xticks([x + 0.5 for x in range(len(cores))], [str(count) for count in cores])
    axes.set_yticks([y + 0.5 for y in range(len(gigabits))], [f"{link:g}" for link in gigabits])
    axes.set_xlabel("cores that restore it")
    axes.set_ylabel("link, Gb/s")
    axes.set_title(title, fontsize=10)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Prints the table for the links, the cores and the prefix that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gigabits", nargs="+", type=float, default=GIGABITS, metavar="N")
    parser.add_argument("--cores", nargs="+", type=int, default=CORES, metavar="N")
    parser.add_argument("--tokens", type=int, default=TOKENS, metavar="N", help="of the prefix")
    parser.add_argument(
        "--token-bytes", type=int, default=TOKEN_BYTES, metavar="N", help="of all layers"
    )
    parser.add_argument("--tensors", type=int, default=TENSORS, metavar="N", help="in the artefact")
    parser.add_argument(
        "--prefill", type=float, metavar="N", help="tokens a second that the engine computes"
    )
    parser.add_argument(
        "--compressing", action="store_true", help="the prefix is not compressed yet"
    )
    parser.add_argument("--plot", type=Path, metavar="PNG", help="also draw the table")
    flags = parser.parse_args()
    sizes = (flags.tokens, flags.token_bytes, flags.tensors, flags.prefill or 1)
    if min(*flags.gigabits, *flags.cores, *sizes) <= 0:
        parser.error("all numbers are above 0")
    known = costs(PAGE.read_text())
    prefix = Prefix(flags.tokens * flags.token_bytes, flags.tensors)
    computed = flags.tokens / flags.prefill if flags.prefill else None
    best = [
        [
            fastest(known, prefix, link, count, compressing=flags.compressing, computed=computed)
            for count in flags.cores
        ]
        for link in flags.gigabits
    ]
    print(*table(best, flags.gigabits, flags.cores), sep="\n")
    if flags.plot:
        title = f"Restoring {flags.tokens:,} tokens, {prefix.size / 1e9:.2f} GB: the fastest way"
        plot(best, flags.gigabits, flags.cores, title, flags.plot)


if __name__ == "__main__":
    main()
