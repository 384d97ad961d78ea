# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Measures what the ratio of a profile depends on: caches, training, and how much of it is kept.

    PYTHON=$(deploy/python-env --no-deps validation/requirements.txt)/bin/python
    export PYTHONPATH=client/python/src KVCOMPRESS_BIN_DIR=bin
    $PYTHON validation/profile_sweep.py --profile model.profile --text FILE... --output DIR

Trains some twenty profiles, which takes an hour or two; a part by --part. What the folders --work
and --output have is not made again. See README.md next to this file.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import datetime
import itertools
import json
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from codec_study import machine
from kvcompress.profiles import read_profile
from kvcompress.profiles._model import LanguageModel
from measure import plot_profiles, profile_report
from measure.injection import load
from measure.models import default_cache
from measure.profile_bench import REFERENCE, Bench, Flags, Row, Sample, windows_of
from measure.profile_variants import MOST, STEPS, Laboratory, Variant, at_step

LENGTHS = (64, 256, 1024, 4096)
CHUNKS = (1024, 256, 64)
BLOCKS = (256, 64, 16)
OTHERS = ("ecsq:contract", "klt:high", "klt:max", "klt:ultra")
TARGET = profile_report.TARGET
# The step that is measured first.
FIRST = {True: 4, False: 2}

VARIANTS = {
    "windows": [Variant(str(count), windows=count) for count in (1, 3, 6, 18, 50)],
    "text": [
        Variant("all three", windows=6),
        Variant("articles alone", text="articles", windows=6),
        Variant("code alone", text="plots", windows=6),
    ],
    "sources": [
        Variant("one text", texts=1),
        Variant("two texts", texts=2),
        Variant("three texts"),
        Variant("text of the model", windows=0, own=30),
        Variant("three texts and text of the model", own=30),
    ],
    "layers": [
        Variant("1", layers=1),
        Variant("5", layers=5),
        Variant("10"),
        Variant("all, 2,048 components", layers=0, components=2048),
    ],
    "components": [
        *(Variant(f"{count:,}", components=count) for count in (256, 512, 1024, 2048)),
        Variant("all that vary", components=MOST),
    ],
    "metric": [Variant("gradients"), Variant("caches alone", gradients=False)],
    "bits": [Variant(str(bits), bits=bits) for bits in (4, 6, 8, 10, 12, 14, 16)],
}


class Sweep:
    """A run; keeps every row in a file at once."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Loads model and tokenizer, and the rows of an earlier run."""
        self._arguments = arguments
        self._model, self._tokenizer = load(arguments.model)
        language_model = LanguageModel(self._model, self._tokenizer)
        texts = {path.stem: path.read_text(encoding="utf-8") for path in arguments.text}
        arguments.work.mkdir(parents=True, exist_ok=True)
        self._laboratory = Laboratory(language_model, texts, arguments.work, arguments.prefix)
        self._file = arguments.output / "profile_sweep.json"
        self.rows: list[Row] = json.loads(self._file.read_text()) if self._file.exists() else []

    def run(self, parts: Sequence[str]) -> None:
        """Runs parts by their names."""
        for part in parts:
            if part == "lengths":
                self._lengths()
            elif part == "chunks":
                self._chunks()
            elif part == "blocks":
                self._blocks()
            else:
                self._variants(part)

    def _samples(
        self, prefix: int, folder: Path, *, unusual: bool = False
    ) -> Iterator[tuple[Bench, Sample]]:
        """Yields windows of each text, one after the other, with what measures them.

        Args:
            prefix: Tokens that are compressed.
            folder: For files.
            unusual: Whether windows of texts that are unlike those of trainings follow.
        """
        bench = Bench(self._model, folder)
        kinds = [
            windows_of(
                self._tokenizer,
                prefix,
                self._arguments.continuation,
                self._arguments.windows,
                copies=False,
                unusual=which,
            )
            for which in ((False, True) if unusual else (False,))
        ]
        for i, (text, window) in enumerate(itertools.chain(*kinds)):
            yield bench, bench.take(text, window, prefix, f"source_{i}")

    def _presets(self) -> dict[str, Flags]:
        """The presets of the profile."""
        return {
            f"profile {preset.name}": [
                *("-profile", self._arguments.profile),
                *("-codec", f"klt:{preset.name}"),
            ]
            for preset in read_profile(self._arguments.profile).presets
        }

    def _own(self) -> dict[str, Flags]:
        """The codecs that are measured on caches of several lengths."""
        flags: dict[str, Flags] = {name: ["-codec", name] for name in (REFERENCE, *OTHERS)}
        return flags | self._presets()

    def _done(self, **keys: Any) -> bool:
        """Returns whether an earlier run measured all of this; forgets what it left unfinished."""
        own = [row for row in self.rows if all(row.get(key) == keys[key] for key in keys)]
        if any("done" in row for row in own):
            return True
        self.rows = [row for row in self.rows if row not in own]
        return False

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        self._arguments.output.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self.rows, indent=1) + "\n")
        print(row, file=sys.stderr, flush=True)

    def _lengths(self) -> None:
        for tokens in LENGTHS:
            if self._done(part="lengths", tokens=tokens):
                continue
            with tempfile.TemporaryDirectory() as folder:
                for bench, sample in self._samples(tokens, Path(folder)):
                    for name, flags in self._own().items():
                        keys = {"part": "lengths", "tokens": tokens, "text": sample.text}
                        self._add({**keys, "name": name, **bench.measure(sample, flags)})
            self._add({"part": "lengths", "tokens": tokens, "done": True})

    def _chunks(self) -> None:
        if self._done(part="chunks"):
            return
        names = (REFERENCE, "klt:ultra", "profile ultra")
        with tempfile.TemporaryDirectory() as folder:
            for bench, sample in self._samples(self._arguments.prefix, Path(folder)):
                for tokens in CHUNKS:
                    for name in names:
                        row = bench.measure_chunks(sample, tokens, self._own()[name])
                        keys = {"part": "chunks", "tokens": tokens, "text": sample.text}
                        self._add({**keys, "name": name, **row})
        self._add({"part": "chunks", "done": True})

    def _blocks(self) -> None:
        if self._done(part="blocks"):
            return
        with tempfile.TemporaryDirectory() as folder:
            samples, presets = self._samples(self._arguments.prefix, Path(folder)), self._presets()
            for window, (bench, sample) in enumerate(samples):
                self._reference(bench, sample, window)
                for tokens in BLOCKS:
                    for name, flags in presets.items():
                        row = bench.measure(sample, [*flags, "-block-tokens", str(tokens)])
                        keys = {"part": "blocks", "tokens": tokens, "text": sample.text}
                        self._add({**keys, "name": name, **row})
        self._add({"part": "blocks", "done": True})

    def _variants(self, part: str) -> None:
        wanted = [each for each in VARIANTS[part] if not self._done(part=part, name=each.name)]
        profiles = [self._laboratory.profile(variant) for variant in wanted]
        if not wanted:
            return
        with tempfile.TemporaryDirectory() as folder:
            found = list(
                self._samples(self._arguments.prefix, Path(folder), unusual=part == "sources")
            )
            reference = sum(self._reference(*each, i)["kl"] for i, each in enumerate(found))
            for variant, profile in zip(wanted, profiles, strict=True):
                self._climb(
                    {"part": part, "name": variant.name}, variant, profile, found, reference
                )

    def _reference(self, bench: Bench, sample: Sample, window: int) -> Row:
        """Returns what is compared with, of a window, measured once."""
        place = {"part": "reference", "window": window}
        row = self._known(place)
        if row is None:
            row = {"text": sample.text, **bench.measure(sample, ["-codec", REFERENCE])}
            self._add({**place, **row})
        return row

    def _climb(
        self,
        keys: Row,
        variant: Variant,
        profile: Path,
        samples: Sequence[tuple[Bench, Sample]],
        reference: float,
    ) -> None:
        """Measures steps until the divergence of one is below the target and of the next above."""
        trial = profile.with_name("trial.profile")
        step, way, found = FIRST[variant.gradients], 0, 0
        while 0 <= step < len(STEPS) and (way == 0 or found == way):
            total = 0.0
            for window, (bench, sample) in enumerate(samples):
                place = {"profile": profile.name, "step": STEPS[step], "window": window}
                row = self._known(place)
                if row is None:
                    at_step(profile, trial, step)
                    flags: Flags = ["-profile", trial, "-codec", "klt:ultra"]
                    row = {"text": sample.text, **bench.measure(sample, flags)}
                total += row["kl"]
                self._add({**keys, **place, "size": profile.stat().st_size, **row})
            found = 1 if total < TARGET * reference else -1
            way = way or found
            step += way
        self._add({**keys, "done": True})

    def _known(self, place: Row) -> Row | None:
        """Returns what is known of a profile: parts share some."""
        numbers = ("text", "bytes", "ratio", "kl", "top1", "perplexity")
        for row in self.rows:
            if all(row.get(key) == place[key] for key in place):
                return {key: row[key] for key in numbers}
        return None


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", default="smollm2", help="as in codec_study.py")
    parser.add_argument("--profile", required=True, type=Path, help="of this model")
    parser.add_argument("--text", required=True, nargs="+", type=Path, help="to train on")
    parser.add_argument(
        "--part",
        nargs="+",
        default=["lengths", "chunks", "blocks", *VARIANTS],
        help="what to measure",
    )
    parser.add_argument("--windows", type=int, default=1, help="of each of the four texts")
    parser.add_argument("--prefix", type=int, default=1024, help="tokens, but of lengths")
    parser.add_argument("--continuation", type=int, default=192, help="tokens that are scored")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch")
    parser.add_argument("--work", type=Path, default=default_cache() / "sweep", help="for profiles")
    parser.add_argument("--output", type=Path, required=True, help="folder for tables and numbers")
    return parser.parse_args(arguments)


def command(parsed: argparse.Namespace) -> str:
    """Returns the command that repeats the study."""
    words = ["profile_sweep.py", "--model", parsed.model, "--profile", parsed.profile.name]
    words += ["--text", *(path.name for path in parsed.text)]
    words += ["--part", *parsed.part, "--windows", str(parsed.windows)]
    words += ["--prefix", str(parsed.prefix), "--continuation", str(parsed.continuation)]
    return shlex.join([*words, "--output", "DIR"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the study and writes tables, numbers and picture."""
    parsed = parse(arguments)
    torch.set_num_threads(parsed.threads)
    sweep = Sweep(parsed)
    sweep.run(parsed.part)
    info = read_profile(parsed.profile)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    fixed = {"lengths", "chunks", "blocks"} & set(parsed.part)
    head = [
        f"{info.label}, {parsed.windows} window{'s' * (parsed.windows > 1)} of {parsed.prefix:,} "
        "tokens of each of four texts but where a table says otherwise, the next "
        f"{parsed.continuation} scored; {date}, {machine()}.",
        "",
        *([f"- Profile of {' and '.join(sorted(fixed))}: {info.digest}"] if fixed else []),
        f"- Command: `{command(parsed)}`",
    ]
    page = profile_report.page(head, sweep.rows)
    (parsed.output / "profile_sweep.md").write_text(page)
    plot_profiles.plot(sweep.rows, parsed.output / "profile_sweep.png")
    print(page)


if __name__ == "__main__":
    main()
