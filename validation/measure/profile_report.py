# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Tables of profile_sweep.py."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from measure.profile_bench import REFERENCE, Row, mean

TARGET = 0.75  # of the divergence of int4
WRITTEN = "<!-- Written by validation/profile_sweep.py; do not edit. -->"

BY_TOKENS = {
    "lengths": "Tokens of a cache",
    "chunks": "Tokens of a chunk",
    "blocks": "Tokens of a block",
}
TITLES = {
    "windows": ("Windows that it was trained on", "windows"),
    "text": ("Text that it was trained on, six windows", "trained on"),
    "sources": ("Texts, and text that the model writes", "trained on"),
    "layers": ("Layers of a group", "layers"),
    "components": ("Components that are kept", "components"),
    "metric": ("Gradients, or caches alone", "metric"),
    "bits": ("Bits of the basis, with a scale for each component", "bits"),
}


class Point(NamedTuple):
    """A profile at one step."""

    step: float
    ratio: float
    share: float
    """Of the divergence of int4 on the same windows."""
    perplexity: float
    top1: float


def points(rows: Sequence[Row], part: str, name: str) -> list[Point]:
    """Returns the steps at which a variant was measured, rising."""
    own = [row for row in rows if (row["part"], row.get("name")) == (part, name) and "kl" in row]
    texts = {row["text"] for row in own}
    known = [row for row in rows if row["part"] == "reference" and row.get("text") in texts]
    reference = mean(known, "kl")
    found = []
    for step in sorted({row["step"] for row in own}):
        at = [row for row in own if row["step"] == step]
        numbers = (mean(at, key) for key in ("ratio", "kl", "perplexity", "top1"))
        ratio, divergence, perplexity, top1 = numbers
        found.append(Point(step, ratio, divergence / reference, perplexity, top1))
    return found


def ratio_at(found: Sequence[Point], target: float = TARGET) -> float | None:
    """Returns the ratio at a share of int4's divergence, by interpolation of logarithms.

    None where no two steps are below it and above.
    """
    for low, high in itertools.pairwise(found):
        if low.share < target <= high.share:
            part = math.log(target / low.share) / math.log(high.share / low.share)
            return low.ratio * math.pow(high.ratio / low.ratio, part)
    return None


def names_of(rows: Sequence[Row], part: str) -> list[str]:
    """Returns the variants of a part that are done, numbers by their size."""
    done = (row for row in rows if row["part"] == part and row.get("done"))
    names = list(dict.fromkeys(row["name"] for row in done if "name" in row))
    return sorted(names, key=int) if all(name.isdigit() for name in names) else names


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _head(cells: Sequence[str]) -> list[str]:
    return [_line(cells), "| --- " * len(cells) + "|"]


def _variants(rows: Sequence[Row], part: str) -> Iterator[str]:
    title, column = TITLES[part]
    yield from (f"## {title}", "")
    head = [column, "profile", f"ratio at {TARGET:.0%} of int4's KL", "step: ratio, KL of int4's"]
    yield from _head([*head, "perplexity, top-1 at the last"])
    for name in names_of(rows, part):
        found = points(rows, part, name)
        ratio = ratio_at(found)
        size = next(row["size"] for row in rows if row.get("name") == name and "size" in row)
        steps = "; ".join(f"{at.step:.2f}: {at.ratio:.1f}x, {at.share:.0%}" for at in found)
        last = f"{found[-1].perplexity:+.1%}, {found[-1].top1:.1%}"
        reached = "not reached" if ratio is None else f"{ratio:.1f}x"
        yield _line([name, f"{size / 1e6:.1f} MB", reached, steps, last])
    yield ""
    if part in ("text", "sources"):
        yield from _by_text(rows, part)


def _by_text(rows: Sequence[Row], part: str) -> Iterator[str]:
    """The same by the text that is compressed, at one step."""
    own = [row for row in rows if row["part"] == part and "kl" in row]
    names = names_of(rows, part)
    steps = set.intersection(*({r["step"] for r in own if r["name"] == name} for name in names))
    if not steps:
        return
    step = max(steps)
    texts = list(dict.fromkeys(row["text"] for row in own))
    yield from (f"By the text that is compressed, at the step {step:.2f}:", "")
    yield from _head(["trained on", *texts])
    for name in names:
        cells = [name]
        for text in texts:
            at = [r for r in own if (r["name"], r["text"], r["step"]) == (name, text, step)]
            base = [r for r in rows if r["part"] == "reference" and r.get("text") == text]
            share = mean(at, "kl") / mean(base, "kl")
            cells.append(f"{mean(at, 'ratio'):.1f}x, {share:.0%}")
        yield _line(cells)
    yield ""


def _by_tokens(rows: Sequence[Row], part: str) -> Iterator[str]:
    """Codecs by the tokens of a cache, a chunk or a block."""
    own = [row for row in rows if row["part"] == part and "kl" in row]
    tokens = list(dict.fromkeys(row["tokens"] for row in own))
    yield from (f"## {BY_TOKENS[part]}", "")
    if part == "chunks":
        yield from (
            f"Each chunk of a cache of {max(tokens):,} tokens is an artefact of its own, a tensor "
            "[2, layers, tokens, heads x head_dim], and does not say where in the text it was.",
            "",
        )
    yield from _head(["codec", *(f"{count:,}" for count in tokens)])
    for name in dict.fromkeys(row["name"] for row in own):
        cells = [name]
        for count in tokens:
            at = [r for r in own if (r["name"], r["tokens"]) == (name, count)]
            base = [r for r in own if (r["name"], r["tokens"]) == (REFERENCE, count)]
            if part == "chunks":  # what the model says is the same for all
                base = [r for r in own if (r["name"], r["tokens"]) == (REFERENCE, tokens[0])]
            if part == "blocks":
                texts = {row["text"] for row in at}
                known = (row for row in rows if row["part"] == "reference")
                base = [row for row in known if row.get("text") in texts]
            share = mean(at, "kl") / mean(base, "kl")
            cells.append(
                f"{mean(at, 'ratio'):.1f}x, {share:.0%}, {mean(at, 'perplexity'):+.1%}, "
                f"{mean(at, 'top1'):.1%}"
            )
        yield _line(cells)
    yield from ("", "Cells: ratio, KL of int4's, perplexity, top-1.", "")


def page(head: Sequence[str], rows: Sequence[Row]) -> str:
    """The tables of all parts that were measured."""
    lines = [WRITTEN, "# What the ratio of a profile depends on", "", *head, ""]
    lines += ["![What the ratio of a profile depends on](profile_sweep.png)", ""]
    for part in BY_TOKENS:
        if any(row["part"] == part and "kl" in row for row in rows):
            lines += _by_tokens(rows, part)
    for part in TITLES:
        if names_of(rows, part):
            lines += _variants(rows, part)
    return "\n".join(lines)
