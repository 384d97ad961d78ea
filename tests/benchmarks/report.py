# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The report of the benchmark, in Markdown."""

import datetime
import importlib.metadata
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from workload import Workload


@dataclass
class Row:
    """One measurement, by the median."""

    name: str
    gigabytes: float  # of values, 10^9 bytes a second
    megavalues: float


ECSQ = "ecsq:contract"
KLT = "klt:contract"

# What is compared, the two sides, and the target of the ratio.
TARGETS: tuple[tuple[str, str, str, float | None], ...] = (
    ("int4 with metrics, against ggml without", "int4 F32 encode", "ggml q4_0 encode", 3),
    ("the same, against a pass that only reads", "int4 F32 encode", "read", 0.65),
    ("the same, against memcpy", "int4 F32 encode", "memcpy", None),
    ("the same, against NumPy", "int4 F32 encode", "NumPy int4 encode", None),
    ("int4 of BF16, against F32", "int4 BF16 encode", "int4 F32 encode", 0.95),
    ("int4 of F16, against F32", "int4 F16 encode", "int4 F32 encode", 0.95),
    ("with Hadamard, F32", "int4-hadamard F32 encode", "int4 F32 encode", 0.6),
    ("with Hadamard, BF16", "int4-hadamard BF16 encode", "int4 BF16 encode", 0.6),
    ("int4 decode to F32, against ggml", "int4 F32 decode", "ggml q4_0 decode", 3.5),
    ("the same, against a pass that only writes", "int4 F32 decode", "write", None),
    ("int4 decode to BF16, against memcpy of it", "int4 BF16 decode", "memcpy, BF16", 1.4),
    ("ecsq keys encode, against zstd-1", f"{ECSQ} key BF16 encode", "zstd-1 BF16 encode", 2),
    ("ecsq values encode, against zstd-1", f"{ECSQ} value BF16 encode", "zstd-1 BF16 encode", 2),
    ("ecsq keys decode, against zstd-1", f"{ECSQ} key BF16 decode", "zstd-1 BF16 decode", 1.6),
    ("ecsq values decode, against zstd-1", f"{ECSQ} value BF16 decode", "zstd-1 BF16 decode", 1.6),
    (
        "rANS of ecsq encode, against htscodecs, order 0, 32 ways",
        "rANS of ecsq encode",
        "htscodecs encode",
        2.3,
    ),
    (
        "rANS of ecsq decode, against htscodecs, order 0, 32 ways",
        "rANS of ecsq decode",
        "htscodecs decode",
        1.1,
    ),
    *(
        (
            f"klt {role}s {side}, against ecsq, {text}",
            f"{KLT} {role} BF16{name} {side}",
            f"{ECSQ} {role} BF16{name} {side}",
            target,
        )
        for name, text in (
            ("", "groups of 256 dimensions, 1024 tokens"),
            (", 256 x 4096", "groups of 256 dimensions, 4096 tokens"),
            (", 192 x 1024", "192 dimensions, 1024 tokens"),
            (", 192 x 4096", "192 dimensions, 4096 tokens"),
        )
        for side, target in (("encode", 0.15), ("decode", 0.35))
        for role in ("key", "value")
    ),
    ("lossless encode, against zstd-1", "lossless BF16 encode", "zstd-1 BF16 encode", None),
    ("lossless decode, against zstd-1", "lossless BF16 decode", "zstd-1 BF16 decode", None),
)


def processor() -> tuple[str, str]:
    """The model, and those of its instructions that matter here."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine(), ""
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*: (.*)$", text, re.MULTILINE)
    known = ("sse4_1", "avx2", "f16c", "fma", "avx512f", "avx512bw", "asimd")
    have = flags.group(1).split() if flags else []
    return (
        model.group(1) if model else platform.machine(),
        " ".join(flag for flag in known if flag in have),
    )


def save(kind: str, text: str, folder: Path) -> None:
    """Writes a report under today's date and the processor; makes the folder where needed."""
    model = re.sub(r"[^a-z0-9]+", "-", processor()[0].lower()).strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{datetime.date.today()}-{model}-{kind}.md").write_text(text)


def render(rows: list[Row], work: Workload, rounds: int) -> str:
    """The whole report."""
    model, flags = processor()
    by_name = {row.name: row for row in rows}
    memcpy, read = by_name["memcpy"].gigabytes, by_name["read"].gigabytes
    lines = [
        "<!-- Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0 -->",
        f"# Kernels and codecs on one thread, {datetime.date.today()}",
        "",
        f"`tests/benchmark --mib {work.size('F32') >> 20} --rounds {rounds}"
        f" --kernels {work.kernels}` on {model} ({flags}), {os.cpu_count()} processors,"
        f" {platform.system()} {platform.release()}; load average {os.getloadavg()[0]:.1f},"
        " our own process included.",
        "",
        f"Input: {work.count:,} synthetic values like those of keys, in 4 KiB pages; entropy coders"
        " depend on such data, and sizes must not be read off it. Medians of CPU time over"
        " interleaved rounds. Encoders measure distortion in the same pass, ggml's does not;"
        f" groups of 64 values, ggml's of 32. The rANS coders alone have symbols of a Gaussian of"
        f" two steps; htscodecs also counts them. ggml from {work.ggml_version},"
        f" {work.htscodecs_version}, NumPy {np.__version__},"
        f" zstandard {importlib.metadata.version('zstandard')}.",
        "",
        "| what | GB/s of values | million values/s | of memcpy | of reading |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row.name} | {row.gigabytes:.2f} | {row.megavalues:,.0f} | {row.gigabytes / memcpy:.0%}"
        f" | {row.gigabytes / read:.0%} |"
        for row in rows
    ]
    lines += ["", "| ratio of values a second | measured | target |", "| --- | --- | --- |"]
    for text, ours, theirs, target in TARGETS:
        if ours not in by_name:  # for which there were too few values
            continue
        ratio = by_name[ours].megavalues / by_name[theirs].megavalues
        lines.append(f"| {text} | {ratio:.2f} | {'' if target is None else target} |")
    return "\n".join(lines) + "\n"
