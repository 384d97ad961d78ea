# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Reads the results that figures of documents come from: tables in Markdown, by their columns."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = "validation/results"
# Of rows without a profile: four windows of each model, and ten others, by today's rules.
MODELS = tuple(
    f"{RESULTS}/models/{model}/codec_study" for model in ("smollm2", "gemma3", "qwen2.5-coder")
)
TEN = (
    f"{RESULTS}/without-profile-smollm2/profile_study",
    f"{RESULTS}/without-profile-gemma3/profile_study",
)
PROFILES = (
    f"{RESULTS}/profiles-smollm2/profile_study",
    f"{RESULTS}/profiles-gemma3/profile_study",
    f"{RESULTS}/profiles-qwen2.5-coder/profile_study",
)
CONTRACTS = (
    f"{RESULTS}/profile-contract-smollm2/profile_study",
    f"{RESULTS}/profile-contract-gemma3/profile_study",
)
CODECS = f"{RESULTS}/codec_study"
# Codecs of other projects on the same windows, and what all of them do to tasks.
OTHERS = f"{RESULTS}/peers-qwen2.5-coder/codec_study"
OTHERS_TASKS = f"{RESULTS}/peers-qwen2.5-coder/task_study"
TASKS = f"{RESULTS}/tasks-smollm2/task_study"
FIRST_TOKEN = f"{RESULTS}/first-token/first_token"
CAPACITY = "deploy/CAPACITY.md"
BENCHMARKS = "tests/benchmarks/README.md"
TOKENS = 4096


class Estimate(NamedTuple):
    """A mean over windows and its standard error; both are 0 where nothing changed."""

    value: float
    error: float


class Row(NamedTuple):
    """Of a study: a codec with a preset, and the cells of its row by the names of columns.

    Columns are those of codec_study.py or of profile_study.py, which has fewer.
    """

    ratio: float
    damage: float
    cells: Mapping[str, str]

    @property
    def x(self) -> str:
        """The ratio, with two digits after the point below 10, else with one."""
        return f"{self.ratio:.{2 if self.ratio < 9.995 else 1}f}"

    @property
    def x1(self) -> str:
        """The ratio, with one digit after the point."""
        return f"{self.ratio:.1f}"

    @property
    def x2(self) -> str:
        """The ratio, with two digits after the point."""
        return f"{self.ratio:.2f}"

    @property
    def bits(self) -> str:
        """Bits per value."""
        return f"{float(self.cells['bits']):.2f}"

    @property
    def kl(self) -> Estimate:
        """KL divergence in nats per token, of codec_study.py."""
        return _estimate(self.cells["KL"])

    @property
    def perplexity(self) -> Estimate:
        """The increase of perplexity, of codec_study.py."""
        return _estimate(self.cells["Δ perplexity"])

    @property
    def percent(self) -> str:
        """The damage: KL divergence as a part of that of int4 on the same text."""
        return f"{100 * self.damage:.0f}"

    @property
    def percent1(self) -> str:
        """The damage, with a digit after the point."""
        return f"{100 * self.damage:.1f}"


class Wait(NamedTuple):
    """For the first token of a way, over all rounds."""

    ratio: float | None
    p50: float
    p99: float
    same: float


class Cost(NamedTuple):
    """CPU seconds of the server for a GB of cache."""

    compress: float
    restore: float

    @property
    def speeds(self) -> list[str]:
        """MB/s of one core."""
        return [f"{1000 / self.compress:,.0f} MB/s", f"{1000 / self.restore:,.0f} MB/s"]


def text_of(path: str) -> str:
    """A file of the repository."""
    return (REPOSITORY / path).read_text()


def _rows(path: str, first: str, place: int = 0) -> list[dict[str, str]]:
    """Of a table whose first column is called so: the cells of each row, by column.

    Args:
        path: The file.
        first: The name of the column.
        place: Which of such tables is meant, from 0.

    Raises:
        SystemExit: The file has no such table.
    """
    found = re.findall(rf"(?m)^\| {first} \|.*(?:\n\|.*)+", text_of(path))
    if len(found) <= place:
        raise SystemExit(f"{path} has no table whose first column is {first!r}")
    lines = [line[1:-1].split("|") for line in found[place].splitlines()]
    head, _, *rows = [[cell.strip() for cell in line] for line in lines]
    return [dict(zip(head, row, strict=True)) for row in rows]


def _estimate(cell: str) -> Estimate:
    value, _, error = cell.partition(" ± ")
    return Estimate(float(value), float(error or 0))


def study(path: str) -> dict[str, Row]:
    """The rows of codec_study.py or profile_study.py, by name."""
    rows = {row["codec"].strip("`"): row for row in _rows(f"{path}.md", "codec")}
    whole = _estimate(rows["int4"]["KL"]).value
    return {
        name: Row(float(row["ratio"].rstrip("x")), _estimate(row["KL"]).value / whole, row)
        for name, row in rows.items()
    }


def stays_right(path: str) -> dict[str, dict[str, str]]:
    """The second table of task_study.py: by codec, what of right answers stays right by task."""
    return {row["codec"]: row for row in _rows(f"{path}.md", "codec", 1)}


def waits(tokens: int = TOKENS) -> dict[str, Wait]:
    """Of the measurement in vLLM, by way, for documents of so many tokens."""
    return {
        row["way"]: Wait(
            float(row["smaller"]) if row["smaller"] else None,
            float(row["first token, s, p50"]),
            float(row["p99"]),
            float(row["same"]),
        )
        for row in _rows(f"{FIRST_TOKEN}.md", "tokens")
        if row["tokens"] == str(tokens)
    }


def costs() -> dict[str, Cost]:
    """Those in the first table of CAPACITY.md, by the names that it has for codecs."""
    rows = re.findall(r"(?m)^\| (`[^|]+?) \| [\d.]+x \| ([\d.]+) \| ([\d.]+) \|", text_of(CAPACITY))
    return {name: Cost(float(compress), float(restore)) for name, compress, restore in rows}
