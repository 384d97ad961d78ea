# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Measures what codecs do to tasks: retrieval, copying, tables, code, and greedy continuations.

    PYTHON=$(deploy/python-env --no-deps validation/requirements.txt)/bin/python
    export PYTHONPATH=client/python/src KVCOMPRESS_BIN_DIR=bin
    $PYTHON validation/task_study.py --output DIR
    $PYTHON validation/task_study.py --profile model.profile --output DIR

The model reads each context once. Its cache goes through kv-compress and back, once for each codec,
and all questions about the context are asked of each restored cache. See README.md next to this
file.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import datetime
import json
import math
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from codec_study import machine, quieten, say
from kvcompress._programs import find_program
from kvcompress.profiles import read_profile
from measure import peers, tasks
from measure.asking import Asker, agreed
from measure.injection import Cache, load, prefill, to_tensors
from measure.models import packaged
from measure.profile_bench import FileRow, flags_of
from measure.rows import Row, ServiceRow

OWN = "uncompressed"
CODECS = (
    *("int4", "int8", "auto", "ecsq:contract"),
    *("klt:contract", "klt:high", "klt:max", "klt:ultra"),
)
RESAMPLES = 10_000  # of contexts, for an interval

Json = dict[str, Any]


@dataclass(frozen=True)
class Metric:
    """A column of the tables.

    Attributes:
        title: Its head.
        task: The task whose cases count.
        key: What of a case counts: `right`, 0 or 1, or `share`, of tokens.
    """

    title: str
    task: str
    key: str = "right"


METRICS = (
    Metric("passkey", "passkey"),
    Metric("multi-key", "multi-key"),
    Metric("copying, tokens", "copying", "share"),
    Metric("copying, passages", "copying"),
    Metric("table", "table"),
    Metric("code", "code"),
    Metric("agreement, tokens", "agreement", "share"),
    Metric(f"agreement, all {tasks.AGREEMENT}", "agreement"),
)


class Examiner:
    """Asks the questions about contexts, with the model's own cache and with restored ones."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        """Takes the model and its tokenizer."""
        self.model = model
        self.tokenizer = tokenizer
        words = tokenizer.batch_decode([[i] for i in range(model.config.vocab_size)])
        self.line_ends = frozenset(i for i, word in enumerate(words) if "\n" in word)

    def own_answers(self, cache: Cache, cases: Sequence[tasks.Case]) -> list[tasks.Case]:
        """Returns the cases, with what the model says with its own cache where no answer is given.

        For agreement that is the answer. For code it is a draft, which other caches often repeat.
        """
        asker, found = Asker(self.model, cache), list(cases)
        limits: dict[str, tuple[int, frozenset[int]]] = {
            "agreement": (tasks.AGREEMENT, frozenset()),
            "code": (tasks.COMPLETION, self.line_ends),
        }
        for task, limit in limits.items():
            chosen = [i for i, case in enumerate(cases) if case.task == task]
            said = asker.generate([cases[i].question for i in chosen], *limit)
            for i, answer in zip(chosen, said, strict=True):
                found[i] = replace(cases[i], answer=answer)
        return found

    def scores(self, cache: Cache, cases: Sequence[tasks.Case]) -> list[Json]:
        """Scores a cache on cases of own_answers().

        Returns:
            Of each case its task, whether it is right, 0 or 1, and the share of its tokens that
            are; first of those whose tokens are compared, then of those that are executed.
        """
        asker = Asker(self.model, cache)
        compared = [case for case in cases if case.function is None]
        said = asker.follow(
            [case.question for case in compared], [case.answer for case in compared]
        )
        found = [_compared(case, tokens) for case, tokens in zip(compared, said, strict=True)]
        executed = [(case, case.function) for case in cases if case.function is not None]
        completed = asker.generate(
            [case.question for case, _ in executed],
            tasks.COMPLETION,
            self.line_ends,
            [case.answer for case, _ in executed],
        )
        for (case, function), tokens in zip(executed, completed, strict=True):
            right = float(tasks.works(function, self.tokenizer.decode(tokens)))
            found.append({"task": case.task, "right": right, "share": right})
        return found


def _compared(case: tasks.Case, said: Sequence[int]) -> Json:
    """Scores tokens: those before the first difference for agreement, else all that are right."""
    pairs = zip(said, case.answer, strict=True)
    same = agreed(said, case.answer) if case.task == "agreement" else sum(a == b for a, b in pairs)
    right = float(list(said) == case.answer)
    return {"task": case.task, "right": right, "share": same / len(case.answer)}


def rows_of(parsed: argparse.Namespace, version: str) -> list[Row]:
    """Returns the rows of the tables, but for the uncompressed one."""
    flags = flags_of(parsed.codec or CODECS, parsed.profile)
    own = [FileRow(name, version, each) for name, each in flags.items()]
    return [*own, *(peers.named(parsed.peer) if parsed.peer else [])]


def examined(examiner: Examiner, context: tasks.Context, rows: Sequence[Row], folder: Path) -> Json:
    """Returns what becomes of a context's questions with each codec, and how long each took."""
    begin = time.monotonic()
    ids = torch.tensor([context.tokens])
    own = to_tensors(prefill(examiner.model, ids), torch.bfloat16)
    source = folder / "source"
    save_file(own, source)
    cases = examiner.own_answers(own, context.cases)
    seconds = {"preparation": time.monotonic() - begin}
    found: Json = {OWN: {"bytes": source.stat().st_size, "cases": examiner.scores(own, cases)}}
    for row in rows:
        begin = time.monotonic()
        coded = row.code(source, own)
        cases_of_row = examiner.scores(coded.cache, cases)
        found[row.name] = {"bytes": coded.bytes, "cases": cases_of_row, "by": row.family}
        seconds[row.name] = time.monotonic() - begin
    return {"kind": context.kind, "text": context.text, "seconds": seconds, "codecs": found}


def interval(counts: Sequence[tuple[float, float]], seed: int) -> tuple[float, float, float]:
    """Returns a share and its 95 % confidence interval, by a bootstrap over contexts.

    Cases of a context are not independent, so contexts are drawn with all their cases.

    Args:
        counts: Of each context, the sum over its cases and their number.
        seed: Of the draws.

    Returns:
        The sum over all cases by their number, nan if there are no cases; and the 2.5 % and 97.5 %
        quantiles, nan if fewer than two contexts have cases.
    """
    pairs = np.array([count for count in counts if count[1]], dtype=np.float64)
    if len(pairs) < 2:
        return (float(pairs[0, 0] / pairs[0, 1]) if len(pairs) else math.nan), math.nan, math.nan
    drawn = np.random.default_rng(seed).integers(0, len(pairs), (RESAMPLES, len(pairs)))
    sums = pairs[drawn].sum(axis=1)
    low, high = np.quantile(sums[:, 0] / sums[:, 1], (0.025, 0.975))
    total = pairs.sum(axis=0)
    return float(total[0] / total[1]), float(low), float(high)


def accuracy(context: Json, codec: str, metric: Metric) -> tuple[float, float]:
    """Returns the sum of a metric over a context's cases, and their number."""
    values = [
        case[metric.key]
        for case in context["codecs"][codec]["cases"]
        if case["task"] == metric.task
    ]
    return sum(values), len(values)


def retention(context: Json, codec: str, metric: Metric) -> tuple[float, float]:
    """Returns how many cases that are right with the own cache stay right, and how many are."""
    own, other = (context["codecs"][name]["cases"] for name in (OWN, codec))
    stay = [
        after["right"]
        for before, after in zip(own, other, strict=True)
        if before["task"] == metric.task and before["right"]
    ]
    return sum(stay), len(stay)


def _cell(share: float, low: float, high: float) -> str:
    if math.isnan(share):
        return "none"
    return f"{share:.1%}" + ("" if math.isnan(low) else f" ({100 * low:.1f} to {100 * high:.1f})")


def table(
    contexts: Sequence[Json],
    metrics: Sequence[Metric],
    count: Callable[[Json, str, Metric], tuple[float, float]],
    seed: int,
) -> Iterator[str]:
    """Yields the lines of a table: each codec with its ratio, and each metric with its interval."""
    yield f"| codec | ratio | {' | '.join(metric.title for metric in metrics)} |"
    yield "| --- " * (2 + len(metrics)) + "|"
    for codec in contexts[0]["codecs"]:
        sizes = [
            sum(context["codecs"][name]["bytes"] for context in contexts) for name in (OWN, codec)
        ]
        ours = contexts[0]["codecs"][codec].get("by") == ServiceRow.family
        cells = [f"`{codec}`" if ours else codec, f"{sizes[0] / sizes[1]:.2f}x"]
        for metric in metrics:
            counts = [count(context, codec, metric) for context in contexts]
            cells.append(_cell(*interval(counts, seed)))
        yield f"| {' | '.join(cells)} |"


def cases_of(contexts: Sequence[Json]) -> Iterator[str]:
    """Yields a line on each task: what it is, and how many cases it has in how many contexts."""
    about = {
        "passkey": f'{tasks.PASSKEYS} sentences such as "The pass key of the vault is 48213.", '
        "each on something else. The question is the sentence up to its number.",
        "multi-key": f'{tasks.KEYS} sentences such as "The pass key of Alice is 48213.", which '
        "differ in the name only.",
        "copying": f"the first {tasks.LEAD} tokens of a passage from the first three quarters of "
        f"the context are given; the next {tasks.COPIED} must follow, each behind the right ones.",
        "table": f"a table of name, city and amount, with {tasks.SHOTS + tasks.ROWS} rows. The "
        f"question is a table of the name and one other column, with {tasks.SHOTS} rows filled in.",
        "code": f"{tasks.FUNCTIONS} Python functions of one line. The question is the head of one; "
        "the completion is executed, and must return what the function does.",
        "agreement": f"{tasks.AGREEMENT} greedy tokens behind an opening, against those with the "
        "uncompressed cache: the share before the first difference, and the share of continuations "
        "that are the same.",
    }
    for task in tasks.TASKS:
        counts = [accuracy(context, OWN, Metric("", task))[1] for context in contexts]
        cases, places = int(sum(counts)), sum(count > 0 for count in counts)
        yield f"- **{task}** ({cases} cases, {places} contexts): {about[task]}"


def page(document: Json) -> str:
    """Returns the document as a page."""
    setup, contexts, seed = document["setup"], document["contexts"], document["setup"]["seed"]
    kept = [metric for metric in METRICS if metric.key == "right" and metric.task != "agreement"]
    lines = [
        "<!-- Written by validation/task_study.py; do not edit. -->",
        f"# What codecs do to tasks: {setup['model']}",
        "",
        f"{len(contexts)} contexts of {setup['prefix']} tokens. Each codec compressed and restored "
        "the cache (BF16) of each context, and the same questions were asked of each restored "
        "cache. Decoding is greedy.",
        "",
        f"- Date: {setup['date']}. Machine: {setup['machine']}.",
        f"- Command: `{setup['command']}`. Took {setup['minutes']:.0f} minutes.",
        f"- Software: {setup['software']}.",
        *([f"- Profile: {setup['profile']}."] if setup["profile"] else []),
        "",
        "## Accuracy",
        "",
        "In parentheses are 95 % confidence intervals, by a bootstrap over contexts. Where all "
        "contexts have the same result, the interval has no width, and tells nothing of the error.",
        "",
        *table(contexts, METRICS, accuracy, seed),
        "",
        "## Of what is right with the uncompressed cache",
        "",
        "The share of those cases that stay right.",
        "",
        *table(contexts, kept, retention, seed),
        "",
        "## Tasks",
        "",
        *cases_of(contexts),
    ]
    return "\n".join(lines) + "\n"


def version_of() -> str:
    """Returns what kv-compress calls itself."""
    program = find_program("kv-compress")
    if program is None:
        sys.exit("Error: no kv-compress: name its folder in KVCOMPRESS_BIN_DIR")
    told = subprocess.run([program, "-version"], check=True, capture_output=True, text=True)
    return told.stdout.strip()


def setup_of(parsed: argparse.Namespace, rows: Sequence[Row]) -> Json:
    """Returns what a study was made with; folders and threads change no number."""
    words = ["validation/task_study.py"]
    for name in ("model", "contexts", "prefix", "seed"):
        if getattr(parsed, name) != PARSER.get_default(name):
            words += [f"--{name}", str(getattr(parsed, name))]
    for name in ("codec", "peer"):
        for each in getattr(parsed, name) or ():
            words += [f"--{name}", each]
    if parsed.profile is not None:
        words += ["--profile", parsed.profile.name]
    carried = packaged(parsed.model)
    packages = [f"{name} {version(name)}" for name in ("torch", "transformers")]
    software = dict.fromkeys([version_of(), *packages, *(row.version for row in rows)])
    return {
        "model": Path(parsed.model).name if carried is None else carried.title,
        "prefix": parsed.prefix,
        "seed": parsed.seed,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "command": shlex.join(words),
        "software": ", ".join(software),
        "profile": None if parsed.profile is None else read_profile(parsed.profile).digest,
    }


def parser() -> argparse.ArgumentParser:
    """Returns the command line."""
    made = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    made.add_argument("--model", default="smollm2", help="as in codec_study.py")
    made.add_argument("--profile", type=Path, help="of this model, whose presets are measured too")
    made.add_argument("--codec", action="append", help="instead of the usual ones; several")
    made.add_argument("--peer", action="append", help="by name, from codec_study.py; several")
    made.add_argument("--contexts", type=int, default=100, help="half of them prose (%(default)s)")
    made.add_argument("--prefix", type=int, default=2048, help="tokens of each (%(default)s)")
    made.add_argument("--seed", type=int, default=1, help="of cases and of intervals")
    made.add_argument("--threads", type=int, default=2, help="of PyTorch")
    made.add_argument("--output", type=Path, required=True, help="folder for tables and numbers")
    return made


PARSER = parser()


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the study; writes its tables and numbers after each context."""
    parsed = PARSER.parse_args(arguments)
    quieten(parsed.threads)
    rows = rows_of(parsed, version_of())
    setup, begin = setup_of(parsed, rows), time.monotonic()
    model, tokenizer = load(parsed.model)
    examiner = Examiner(model, tokenizer)
    maker = tasks.Maker(tokenizer, parsed.prefix, parsed.seed)
    parsed.output.mkdir(parents=True, exist_ok=True)
    contexts: list[Json] = []
    for context in maker.contexts(parsed.contexts):
        with tempfile.TemporaryDirectory() as folder:
            contexts.append(examined(examiner, context, rows, Path(folder)))
        minutes = (time.monotonic() - begin) / 60
        say(f"context {len(contexts)} of {parsed.contexts}, {context.kind}: {minutes:.1f} minutes")
        document = {"setup": {**setup, "minutes": minutes}, "contexts": contexts}
        (parsed.output / "task_study.json").write_text(json.dumps(document) + "\n")
        (parsed.output / "task_study.md").write_text(page(document))
    print((parsed.output / "task_study.md").read_text())


if __name__ == "__main__":
    main()
