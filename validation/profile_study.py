# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Measures what the presets of a profile do to a model, next to codecs without one.

    PYTHON=$(deploy/python-env --no-deps validation/requirements.txt)/bin/python
    export PYTHONPATH=client/python/src KVCOMPRESS_BIN_DIR=bin
    $PYTHON -m kvcompress.profiles train --model FILE --text FILE... --output model.profile
    $PYTHON validation/profile_study.py --model smollm2 --profile model.profile

Texts are those of codec_study.py and one that repeats a passage of its own word for word, or with
--unusual four kinds that are unlike those of trainings. No profile may have been trained on them.
Without --profile the codecs that need none are measured alone. See README.md next to this file.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import datetime
import json
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from codec_study import machine
from kvcompress.profiles import ProfileInfo, read_profile
from measure.injection import load
from measure.profile_bench import REFERENCE, Bench, Flags, mean, windows_of

# Codecs without a profile, by their names in the table.
OTHERS = ("ecsq contract", "ecsq high", "klt high", "klt max", "klt ultra")


def rows_of(
    info: ProfileInfo | None, profile: Path | None, others: Sequence[str]
) -> dict[str, Flags]:
    """Returns the flags of each codec by its name in the table."""
    rows: dict[str, Flags] = {REFERENCE: ["-codec", REFERENCE]}
    rows |= {name: ["-codec", name.replace(" ", ":")] for name in others}
    if info is None or profile is None:
        return rows
    rows["lossless"] = ["-codec", "lossless"]
    rows["profile lossless"] = ["-profile", profile, "-codec", "lossless"]
    for each in info.presets:
        flags: Flags = ["-profile", profile, "-codec", f"klt:{each.name}"]
        rows[f"profile {each.name}"] = flags
        if each.name == "high":  # alone depends on it: others have a trellis always, or never
            rows[f"profile {each.name}, effort best"] = [*flags, "-effort", "best"]
    return rows


def table(results: Sequence[dict[str, Any]]) -> list[str]:
    """Rows of means over all windows, and of each text's divergence next to int4's."""
    texts = list(dict.fromkeys(row["text"] for row in results))
    head = ["codec", "ratio", "KL", "of int4's", "perplexity", "top-1"]
    head += [f"{text}: ratio, KL of int4's" for text in texts]
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    reference = [row for row in results if row["name"] == REFERENCE]
    for name in dict.fromkeys(row["name"] for row in results):
        rows = [row for row in results if row["name"] == name]
        cells = [
            name,
            f"{mean(rows, 'ratio'):.2f}",
            f"{mean(rows, 'kl'):.6f}",
            f"{mean(rows, 'kl') / mean(reference, 'kl'):.0%}",
            f"{mean(rows, 'perplexity'):+.2%}",
            f"{mean(rows, 'top1'):.1%}",
        ]
        for text in texts:
            own = [row for row in rows if row["text"] == text]
            other = [row for row in reference if row["text"] == text]
            share = mean(own, "kl") / mean(other, "kl")
            cells.append(f"{mean(own, 'ratio'):.1f}, {share:.0%}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def page(
    arguments: argparse.Namespace, info: ProfileInfo | None, results: list[dict[str, Any]]
) -> str:
    """The table with what it was made of."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    windows = len({row["window"] for row in results})
    title, files, about = f"{arguments.model} without a profile", "Whole files.", []
    if info is not None:
        title = f"A profile of {info.label}"
        files = f"Whole files; the profile, {info.size:,} bytes, is not counted."
        about = [f"- Profile: {info.digest}", f"- Training: {info.training}"]
    return "\n".join(
        [
            "<!-- Written by validation/profile_study.py; do not edit. -->",
            f"# {title}",
            "",
            f"{windows} windows, {arguments.prefix} tokens compressed, the next "
            f"{arguments.continuation} scored; {date}, {machine()}. {files}",
            "",
            *about,
            f"- Command: `profile_study.py {shlex.join(sys.argv[1:])}`",
            "",
            *table(results),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the study and writes its table and numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", default="smollm2", help="as in codec_study.py")
    parser.add_argument("--profile", type=Path, help="of this model; none: other codecs alone")
    parser.add_argument("--prefix", type=int, default=1024, help="tokens that are compressed")
    parser.add_argument("--continuation", type=int, default=192, help="tokens that are scored")
    parser.add_argument("--windows", type=int, default=2, help="of each kind of text")
    parser.add_argument("--unusual", action="store_true", help="kinds unlike those of trainings")
    parser.add_argument("--no-others", action="store_true", help="next to int4 alone")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch")
    parser.add_argument("--output", type=Path, required=True, help="folder for table and numbers")
    parsed = parser.parse_args(arguments)
    torch.set_num_threads(parsed.threads)
    info = None if parsed.profile is None else read_profile(parsed.profile)
    model, tokenizer = load(parsed.model)
    results: list[dict[str, Any]] = []
    windows = windows_of(
        tokenizer, parsed.prefix, parsed.continuation, parsed.windows, unusual=parsed.unusual
    )
    rows = rows_of(info, parsed.profile, () if parsed.no_others else OTHERS)
    parsed.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(model, Path(folder))
        for i, (text, window) in enumerate(windows):
            sample = bench.take(text, window, parsed.prefix)
            for name, flags in rows.items():
                row = {"text": text, "window": i, "name": name, **bench.measure(sample, flags)}
                results.append(row)
                print(row, file=sys.stderr, flush=True)
            (parsed.output / "profile_study.json").write_text(json.dumps(results, indent=1) + "\n")
            (parsed.output / "profile_study.md").write_text(page(parsed, info, results))
    print(page(parsed, info, results))


if __name__ == "__main__":
    main()
