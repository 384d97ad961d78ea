# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Measures what the presets of a profile do to a model, next to codecs without one.

    PYTHON=$(deploy/python-env --no-deps validation/requirements.txt)/bin/python
    export PYTHONPATH=client/python/src KVCOMPRESS_BIN_DIR=bin
    $PYTHON -m kvcompress.profiles train --model FILE --text FILE... --output model.profile
    $PYTHON validation/profile_study.py --model smollm2 --profile model.profile

Texts are those of codec_study.py, and one that repeats a passage of its own word for word. No
profile may have been trained on them. See README.md next to this file.
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from codec_study import machine
from kvcompress._programs import find_program
from kvcompress.profiles import ProfileInfo, read_profile
from measure.injection import (
    compare,
    continue_with,
    first_tokens,
    load,
    prefill,
    split,
    spread,
    to_tensors,
)
from measure.texts import TEXTS

REFERENCE = "int4"
COPIED = 400  # tokens that the last kind of text repeats


def windows_of(
    tokenizer: Any, prefix: int, continuation: int, count: int
) -> Iterator[tuple[str, list[int]]]:
    """Gives windows with the names of their texts."""
    first = first_tokens(tokenizer)
    length = prefix + continuation + 1 - len(first)
    for text in TEXTS:
        tokens = tokenizer(text.read(), add_special_tokens=False)["input_ids"]
        cut = spread(tokens, length, count)
        for window in cut:
            yield text.name, first + window
        if text.name != "news":
            continue
        copied = min(COPIED, (prefix - continuation) // 2 - 4)
        for window in cut:
            # The prefix ends within a copy, with which the continuation goes on.
            begin = prefix - len(first) - 2 * copied - continuation - 1
            passage = window[begin : begin + copied + continuation + 1]
            yield "copy", first + window[: length - len(passage)] + passage


def run(*arguments: str | Path) -> None:
    """Runs kv-compress."""
    program = find_program("kv-compress")
    if program is None:
        sys.exit("Error: no kv-compress: name its folder in KVCOMPRESS_BIN_DIR")
    subprocess.run([program, "-force", *arguments], check=True, stdout=subprocess.DEVNULL)


def rows_of(info: ProfileInfo, profile: Path) -> dict[str, list[str | Path]]:
    """Gives the flags of each codec by its name in the table."""
    rows: dict[str, list[str | Path]] = {
        REFERENCE: ["-codec", "int4"],
        "klt ultra": ["-codec", "klt:ultra"],
    }
    for each in info.presets:
        rows[f"profile {each.name}"] = ["-profile", profile, "-codec", f"klt:{each.name}"]
    return rows


def measure(
    model: Any, window: Sequence[int], prefix: int, rows: dict[str, list[str | Path]]
) -> list[dict[str, Any]]:
    """Measures every codec on one window."""
    read, fed, targets = split(list(window), prefix)
    cache = to_tensors(prefill(model, read), torch.bfloat16)
    base = continue_with(model, [cache], fed)[0]
    results = []
    with tempfile.TemporaryDirectory() as folder:
        source, small, back = (Path(folder) / name for name in ("in", "small", "back"))
        save_file(cache, source)
        for name, flags in rows.items():
            run(*flags, "-input", source, "-output", small)
            using = flags[:2] if flags[0] == "-profile" else []
            run(*using, "-decompress", "-input", small, "-output", back)
            restored = load_file(back)
            score = compare(base, continue_with(model, [restored], fed)[0], targets)
            size = small.stat().st_size
            results.append(
                {
                    "name": name,
                    "bytes": size,
                    "ratio": source.stat().st_size / size,
                    "kl": score.kl,
                    "top1": score.top1,
                    "perplexity": math.exp(score.nll) / math.exp(score.nll_base) - 1,
                }
            )
    return results


def mean(rows: Sequence[dict[str, Any]], key: str) -> float:
    """The mean of a number over windows."""
    return float(sum(row[key] for row in rows) / len(rows))


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
            f"{mean(rows, 'kl'):.5f}",
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


def page(arguments: argparse.Namespace, info: ProfileInfo, results: list[dict[str, Any]]) -> str:
    """The table with what it was made of."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    windows = len({row["window"] for row in results})
    return "\n".join(
        [
            "<!-- Written by validation/profile_study.py; do not edit. -->",
            f"# A profile of {info.label}",
            "",
            f"{windows} windows, {arguments.prefix} tokens compressed, the next "
            f"{arguments.continuation} scored; {date}, {machine()}. Whole files; the profile, "
            f"{info.size:,} bytes, is not counted.",
            "",
            f"- Profile: {info.digest}",
            f"- Training: {info.training}",
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
    parser.add_argument("--profile", required=True, type=Path, help="of this model")
    parser.add_argument("--prefix", type=int, default=1024, help="tokens that are compressed")
    parser.add_argument("--continuation", type=int, default=192, help="tokens that are scored")
    parser.add_argument("--windows", type=int, default=2, help="of each kind of text")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch")
    parser.add_argument("--output", type=Path, required=True, help="folder for table and numbers")
    parsed = parser.parse_args(arguments)
    torch.set_num_threads(parsed.threads)
    info = read_profile(parsed.profile)
    model, tokenizer = load(parsed.model)
    results: list[dict[str, Any]] = []
    windows = windows_of(tokenizer, parsed.prefix, parsed.continuation, parsed.windows)
    for i, (text, window) in enumerate(windows):
        rows = measure(model, window, parsed.prefix, rows_of(info, parsed.profile))
        results += [{"text": text, "window": i, **row} for row in rows]
        print(f"window {i} ({text})", *rows, sep="\n", file=sys.stderr, flush=True)
        parsed.output.mkdir(parents=True, exist_ok=True)
        (parsed.output / "profile_study.json").write_text(json.dumps(results, indent=1) + "\n")
        (parsed.output / "profile_study.md").write_text(page(parsed, info, results))
    print(page(parsed, info, results))


if __name__ == "__main__":
    main()
