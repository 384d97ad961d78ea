#!/usr/bin/env python3
# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Writes the figures that documents state, from the results that they come from.

    figures.py

Rewrites what stands between `<!-- figures: NAME -->` and `<!-- end of figures -->` in the documents
of BLOCKS, from the tables in validation/results, CAPACITY.md and the README of the benchmarks.
What documents say of them in sentences and in tables of their own is compared, not written, by
tests/deploy/test_figures.py. Needs Python alone.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from results import (
    BENCHMARKS,
    CODECS,
    CONTRACTS,
    MODELS,
    OTHERS,
    OTHERS_TASKS,
    PROFILES,
    REPOSITORY,
    RESULTS,
    TASKS,
    TEN,
    TOKENS,
    costs,
    stays_right,
    study,
    text_of,
    waits,
)


class Headline(NamedTuple):
    """A row of the README's table: which row of which studies, and of CAPACITY.md."""

    label: str
    row: str
    studies: Sequence[str]
    costs: str = ""


HEADLINES = (
    Headline("`lossless`", "lossless", (*MODELS, CODECS), "`lossless`"),
    Headline("`ecsq:contract`", "ecsq contract", (*MODELS, *TEN, CODECS), "`ecsq`, contract"),
    Headline("`auto`", "auto", (*MODELS, CODECS), "`auto`"),
    Headline("`klt`, `klt:contract`", "klt contract", (*MODELS, CODECS), "`klt`, contract"),
    Headline("`klt:high`", "klt high", (*MODELS, *TEN, CODECS), "`klt`, high"),
    Headline("`klt:contract`, profile", "profile contract", CONTRACTS),
    Headline("`klt:high`, profile", "profile high", PROFILES),
    Headline("`klt:max`, profile", "profile max", PROFILES),
    Headline("`klt:ultra`, profile", "profile ultra", PROFILES),
    Headline("`int4`, for comparison", "int4", (*MODELS, *TEN, CODECS), "`int4`"),
)
# Ways to a first token: the name in the measurement, that in the README if it is there, and what
# it has to beat.
WAYS = (
    ("compute", "computed by vLLM", ""),
    ("raw", "read from the disk, uncompressed", "raw"),
    ("lossless", "", "raw"),
    ("ecsq", "read from the disk, `ecsq`", "raw"),
    ("klt", "read from the disk, `klt`", "raw"),
    ("klt:max, profile", "read from the disk, `klt:max`, profile", "raw"),
    ("1 Gb/s, raw", "sent over 1 Gb/s, uncompressed", "1 Gb/s, raw"),
    ("1 Gb/s, lossless", "", "1 Gb/s, raw"),
    ("1 Gb/s, ecsq", "sent over 1 Gb/s, `ecsq`", "1 Gb/s, raw"),
    ("1 Gb/s, klt", "sent over 1 Gb/s, `klt`", "1 Gb/s, raw"),
)
# Rows of the tables in docs/quality.md, by the names of the study; its columns follow below.
OWN = ("lossless", "int8", "int4", "int4-hadamard", "int4-kivi", "sparse")
ECSQ = ("ecsq contract", "ecsq high", "ecsq max")
KLT = ("klt contract", "klt contract best", "klt high", "klt high best", "klt max", "klt ultra")
PEERS = {
    "quanto 4-bit, keys by channel": "quanto 4-bit, keys by channel",
    "hqq 4-bit": "hqq 4-bit",
    "q4_0": "ggml Q4_0",
    "q8_0": "ggml Q8_0",
}
# Next to other projects, of which the study has more rows.
ENGINES = (
    *("vLLM fp8", "vLLM int8_per_token_head", "vLLM int4_per_token_head", "LMCache CacheGen"),
    *("vLLM turboquant_k8v4", "vLLM turboquant_4bit_nc", "vLLM turboquant_3bit_nc"),
)
PRESETS = ("high", "max", "ultra")
NEXT_TO_OTHERS = (
    *("int8", "int4", "int4-kivi", "ecsq contract", "auto"),
    *(f"klt {preset}{profile}" for profile in ("", ", profile") for preset in PRESETS),
)
# Of task_study.py: columns, and what docs/quality.md calls them.
COLUMNS = {
    "passkey": "pass keys",
    "multi-key": "one of 16 keys",
    "copying, passages": "copying",
    "table": "table",
    "code": "code",
}
PAGES = {
    "lossless": ("lossless", "`lossless`"),
    "int8": ("int8", "`int8`"),
    "int4": ("int4", "`int4`"),
    "int4-hadamard": ("int4-hadamard", "`int4-hadamard`"),
    "int4-kivi": ("int4-kivi", "`int4-kivi`"),
    "sparse": ("sparse", ""),
    "ecsq contract": ("ecsq", "`ecsq`, contract"),
    "klt contract": ("klt", "`klt`, contract"),
    "klt high": ("klt", "`klt`, high"),
    "klt ultra": ("klt", ""),
    "auto": ("auto", "`auto`"),
}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "".join(f"| {cell} " if cell else "| " for cell in line) + "|" for line in lines
    )


def spread(texts: Sequence[str], unit: str) -> str:
    """From the least to the most, or both in one where they are written alike."""
    least, most = (f(texts, key=float) for f in (min, max))
    return f"{least}{unit}" if least == most else f"{least} to {most}{unit}"


def codecs() -> str:
    """The table of the README."""
    known, rows = costs(), []
    for each in HEADLINES:
        found = [study(path)[each.row] for path in each.studies]
        label = each.label.partition(",")[0]
        speeds = known[each.costs].speeds if each.costs else of_ecsq(label)
        damage = spread([row.percent for row in found], " %")
        rows.append(
            [
                each.label,
                spread([row.x for row in found], "x"),
                "0, exact" if each.row == "lossless" else damage,
                *speeds,
            ]
        )
    return table(["codec", "ratio", "damage", "compress", "restore"], rows)


def of_ecsq(label: str) -> list[str]:
    """What a codec with a profile does next to ecsq:contract, without the service around it."""
    rows = re.findall(
        rf"(?m)^\| {label}, AVX\S+ \| [^|]+ \| ([\d.]+) \| [^|]+ \| ([\d.]+) \|",
        text_of(BENCHMARKS),
    )
    if not rows:
        return ["not measured"] * 2
    parts = [[f"{100 * float(part):.0f}" for part in column] for column in zip(*rows, strict=True)]
    return [spread(part, " % of `ecsq`") for part in parts]


def _times(value: float) -> str:
    return f"{value:.{1 if value < 9.95 else 0}f}x"


def first_token() -> str:
    """The README's table of times to the first token."""
    known, rows = waits(), []
    for way, label, rival in WAYS:
        if not label:
            continue
        wait = known[way]
        rows.append(
            [
                label,
                f"{wait.ratio:.3g}x" if wait.ratio else "",
                f"{wait.p50:.2f} s",
                _times(known["compute"].p50 / wait.p50) if rival else "",
                _times(known[rival].p50 / wait.p50) if rival not in ("", way) else "",
                f"{wait.same:.1f}",
            ]
        )
    head = "4,096 tokens are", "smaller", "first token", "vs computing", "vs uncompressed", "same"
    return table(head, rows)


def sources() -> str:
    """The table of docs/figures.md: each headline figure and the result that it comes from."""
    rows = []
    for each in HEADLINES:
        for path in each.studies:
            row = study(path)[each.row]
            place = path.removeprefix(f"{RESULTS}/")
            link = f"[{place}](../{path}.md)"
            rows.append([each.label, f"{row.x2}x", f"{row.percent1} %", link])
    return table(["codec", "ratio", "damage", "study"], rows)


def waiting() -> str:
    """The table of docs/figures.md of times to the first token, with p99 and all lengths."""
    rows = []
    for way, *_ in WAYS:
        cells = [waits(tokens)[way] for tokens in (1024, 2048, TOKENS, 6144)]
        rows.append([f"`{way}`", *(f"{each.p50:.3f} s, {each.p99:.3f} s" for each in cells)])
    return table(["way", "1,024", "2,048", "4,096", "6,144"], rows)


def _share(value: float, *, exact: bool) -> str:
    return "0" if exact else f"{100 * value:.{1 if value < 0.0995 else 0}f}%"


def _quality(path: str, names: Mapping[str, str], *, errors: bool) -> str:
    """A table of docs/quality.md."""
    rows, found = [], study(path)
    for name, label in names.items():
        row = found[name]
        kl, perplexity = row.kl, row.perplexity
        exact = kl.value == 0
        digits = 6 if kl.value < 0.001 else 4
        change = f"{perplexity.value:+.2f}"
        if errors:
            change += f" ± {perplexity.error:.2f}"
        cells = [label, f"{row.x2}x"]
        cells.append("0, bit exact" if exact else f"{kl.value:.{digits}f} ± {kl.error:.{digits}f}")
        cells += [_share(row.damage, exact=exact), "0" if exact else change]
        cells += [row.cells[name] for name in ("top-1", "in bounds")]
        if not errors:
            cells.append(row.cells["SNR"])
        rows.append(cells)
    head = ["codec", "ratio", "KL, nats/token", "vs `int4`", "perplexity", "top-1", "in bounds"]
    return table(head if errors else [*head, "SNR"], rows)


def _label(name: str) -> str:
    codec, comma, profile = name.removesuffix(" best").partition(", ")
    return f"`{codec}`{comma}{profile}" + (", effort `best`" if name.endswith(" best") else "")


def all_codecs() -> str:
    """The study of all codecs, with those of other projects."""
    names = {name: _label(name) for name in (*OWN, *ECSQ, *KLT, "auto")}
    return _quality(CODECS, names | PEERS, errors=True)


def one_model(path: str) -> str:
    """A study with today's rules."""
    known = study(path)
    names = [name for name in (*OWN, *ECSQ, *KLT, "auto") if name in known]
    return _quality(path, {name: _label(name) for name in names}, errors=False)


def other_projects() -> str:
    """The study with codecs of other projects, the smallest ratio first."""
    found = study(OTHERS)
    ours = {name: _label(name) for name in NEXT_TO_OTHERS}
    names = {**PEERS, **{name: name for name in ENGINES}, **ours}
    ordered = sorted(names, key=lambda name: found[name].ratio)
    return _quality(OTHERS, {name: names[name] for name in ordered}, errors=True)


def tasks(path: str) -> str:
    """What of right answers stays right."""
    rows = []
    for name, row in stays_right(path).items():
        if name == "uncompressed":
            continue
        label = re.sub(r"^`(.+), profile`$", r"`\1`, profile", name)
        rows.append([label, row["ratio"], *(_percent(row[task]) for task in COLUMNS)])
    return table(["codec", "ratio", *COLUMNS.values()], rows)


def _percent(cell: str) -> str:
    """A share with its interval, as task_study.py writes it, without digits after the point."""
    if cell == "none":
        return cell
    share, *ends = (f"{float(value):.0f}" for value in re.findall(r"[\d.]+", cell))
    exact = not ends or ends == [share, share]
    return f"{share} %" + ("" if exact else f" ({' to '.join(ends)})")


def pages_of_codecs() -> str:
    """The table of docs/codecs/README.md."""
    rows, found, known = [], study(CODECS), costs()
    for name, (page, cost) in PAGES.items():
        row, preset = found[name], name.removeprefix(page).strip()
        label = f"[`{page}`]({page}.md)" + (f", `{preset}`" if preset else "")
        label += ", half of the values" if name == "sparse" else ""
        share = _share(row.damage, exact=row.damage == 0)
        cells = [label, row.bits, share.replace("%", " %")]
        cells.append(row.cells["in bounds"].replace("%", " %"))
        each = known.get(cost)
        cells.append(f"{each.compress:.2f}, {each.restore:.2f}" if each else "not measured")
        rows.append(cells)
    head = ["codec", "bits per value", "KL, share of `int4`'s", "tensors in bounds"]
    return table([*head, "encode, decode (CPU s/GB)"], rows)


# The blocks that are written, by document and name.
BLOCKS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"codecs": codecs, "first token": first_token},
    "docs/figures.md": {"sources": sources, "first token": waiting},
    "docs/quality.md": {
        "all codecs": all_codecs,
        "SmolLM2": lambda: one_model(MODELS[0]),
        "Gemma": lambda: one_model(MODELS[1]),
        "Qwen": lambda: one_model(MODELS[2]),
        "other projects": other_projects,
        "other projects, tasks": lambda: tasks(OTHERS_TASKS),
        "tasks": lambda: tasks(TASKS),
    },
    "docs/codecs/README.md": {"codecs": pages_of_codecs},
}


def written(text: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """A document with its blocks as they should be.

    Raises:
        SystemExit: It has not these blocks.
    """
    names = re.findall(r"(?m)^<!-- figures: (.+) -->$", text)
    if sorted(names) != sorted(blocks):
        raise SystemExit(f"blocks of figures are {names}; wanted: {list(blocks)}")
    return re.sub(
        r"(?ms)^(<!-- figures: ([^\n]+) -->\n).*?^(<!-- end of figures -->)$",
        lambda match: f"{match[1]}\n{blocks[match[2]]()}\n\n{match[3]}",
        text,
    )


def main() -> None:
    """Writes the documents whose figures have changed, and says which."""
    for document, blocks in BLOCKS.items():
        before = text_of(document)
        after = written(before, blocks)
        if after != before:
            (REPOSITORY / document).write_text(after)
            print(document)


if __name__ == "__main__":
    main()
