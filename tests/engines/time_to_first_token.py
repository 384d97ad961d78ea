# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Measures the time to the first token in vLLM on a CPU: computed, or restored from files.

    python tests/engines/time_to_first_token.py --model FOLDER [--tokens 1024 2048 4096 6144]

A document is the prompt, with another question in each round; between rounds the engine's own cache
and the tier in host memory are emptied, and files leave the system's cache of files, so that they
come from the disk. Ways: `compute` (no tier), `raw` (vLLM's own tier of files, blocks as they are)
and a codec each; with `1 Gb/s, ` before it, LMCache has its chunks in a Redis behind a proxy that
carries so much: `raw` with LMCache's own adapter, codecs with ours. Each prompt goes on for 16
tokens, greedily: `same` is how many of them, on average, come before the first that is not what the
model says without a cache. `KL` is the divergence, in nats, of the probabilities of the first one.
Prints a table in Markdown; --json saves what it says, and with --plot a picture is made of that.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from ways import LINK, open_way

HERE = Path(__file__).parent
_GENERATED = 16
_WAYS = ["raw", "lossless", "ecsq", "klt"]
_WAYS += [LINK + way for way in _WAYS]


def measure(
    model: str, name: str, prompts: list[list[list[int]]], profile: Path | None
) -> dict[str, Any]:
    """Runs all rounds of a way in one engine; the first of each length fills the tier.

    Besides what vllm_engine.py reports the result has `predictions` and `ratio`.
    """
    alone = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}
    alone["TORCHDYNAMO_DISABLE"] = "1"  # or a kernel is compiled for the first prediction
    with open_way(name, profile) as way, tempfile.TemporaryDirectory() as folder:
        requests: list[Any] = []
        for rounds in prompts:
            for prompt in rounds:
                requests += [prompt, {"predict": prompt}, *way.between]
        job = {
            "model": model,
            "tokens": _GENERATED,
            "max_model_len": max(len(rounds[0]) for rounds in prompts) + 64,
            "requests": requests,
            "predictions": f"{folder}/predictions.npy",
            **way.job,
        }
        done = subprocess.run(
            [sys.executable, HERE / "vllm_engine.py"],
            input=json.dumps(job).encode(),
            stdout=subprocess.PIPE,
            env={**alone, **os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": _paths()},
            check=True,
        )
        result = dict(json.loads(done.stdout))
        result["predictions"] = np.load(job["predictions"])
        result["ratio"] = way.ratio(result["counters"])
    return result


def _paths() -> str:
    """Where the engine's process and those that it starts find modules of this folder."""
    return os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])


def quantile(values: list[float], share: float) -> float:
    """Returns the smallest value that so many are not above."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def agreed(tokens: list[int], computed: list[int]) -> int:
    """Returns how many tokens come before the first that differs."""
    pairs = zip(tokens, computed, strict=True)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), len(tokens))


def rows_of(
    way: str,
    result: dict[str, Any],
    computed: dict[str, Any],
    prompts: list[list[list[int]]],
    lengths: list[int],
) -> list[dict[str, Any]]:
    """Returns what the table says of a way, for each length."""
    # Probabilities of the token after the prompt, and how far they are from those of `compute`.
    exact = computed["predictions"]
    divergence = (np.exp(exact) * (exact - result["predictions"])).sum(-1)
    count = 0
    found, rows = zip(result["results"], computed["results"], strict=True), []
    for rounds, length in zip(prompts, lengths, strict=True):
        pairs = [next(found) for _ in rounds][1:]
        each = [one for one, _ in pairs]
        first, count = count + 1, count + len(rounds)
        seconds = [one["seconds"] for one in each]
        row = {
            "tokens": length,
            "way": way,
            "ratio": result["ratio"],
            "served": sum(one["served"] for one in each) / (len(each) * length),
            "p50": quantile(seconds, 0.5),
            "p99": quantile(seconds, 0.99),
            "same": sum(agreed(one["tokens"], other["tokens"]) for one, other in pairs) / len(each),
            "kl": float(divergence[first:count].mean()),
        }
        rows.append(row)
    return rows


def line_of(row: dict[str, Any]) -> str:
    """Returns a row of the table in Markdown."""
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    times = f"{row['p50']:.3f} | {row['p99']:.3f}"
    served = f"{100 * row['served']:.0f} %"
    same = f"{row['same']:.1f} | {row['kl']:.4f}"
    return f"| {row['tokens']} | {row['way']} | {ratio} | {served} | {times} | {same} |"


def draw(rows: list[dict[str, Any]], caption: str, path: Path) -> None:
    """Draws the medians of each way, with its ratio."""
    import matplotlib  # type: ignore[import-not-found,unused-ignore]

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9.5, 4.5), dpi=120)
    for way in dict.fromkeys(row["way"] for row in rows):
        of_way = [row for row in rows if row["way"] == way]
        ratio = of_way[0]["ratio"]
        label = way if ratio is None else f"{way}, {ratio:.1f}x smaller"
        axes.plot(
            [row["tokens"] for row in of_way],
            [row["p50"] for row in of_way],
            marker="o",
            linestyle="--" if way.startswith(LINK) else "-",
            label=label,
        )
    axes.set(xlabel="tokens of the document", ylabel="seconds to the first token, median")
    axes.set_title(caption, fontsize=9)
    axes.set_yscale("log")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.tight_layout()
    figure.savefig(path)


def prompts_of(arguments: argparse.Namespace) -> list[list[list[int]]]:
    """Returns the prompts of each length, one for each round and one before them."""
    from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]

    tokenizer = Tokenizer.from_file(f"{arguments.model}/tokenizer.json")
    ids = tokenizer.encode(arguments.text.read_text()).ids
    # No document is the beginning of another, so that none finds another's blocks.
    return [
        [
            ids[index : index + length] + tokenizer.encode(f"\nQuestion {each}:").ids
            for each in range(arguments.rounds + 1)
        ]
        for index, length in enumerate(arguments.tokens)
    ]


def main() -> None:
    """Measures and prints, or draws what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--text", type=Path, default=HERE.parents[1] / "core" / "FORMAT.md")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 2048, 4096, 6144])
    parser.add_argument("--ways", nargs="+", default=_WAYS)
    parser.add_argument("--profile", type=Path, help="a profile of the model, for klt:max")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="draw --json, and measure nothing")
    arguments = parser.parse_args()
    if arguments.plot:
        saved = json.loads(arguments.json.read_text())
        draw(saved["rows"], saved["where"], arguments.plot)
        return
    prompts = prompts_of(arguments)
    named = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    processor = named[1] if named else platform.machine()
    date = time.strftime("%Y-%m-%d", time.gmtime())
    where = f"vLLM on {os.cpu_count()} processors of {processor}, {date}"
    print(f"{where}, load {os.getloadavg()[0]:.1f}\n")
    print("| tokens | way | smaller | from files | first token, s, p50 | p99 | same | KL |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    computed, rows = None, []
    profiled = ["klt:max, profile"] if arguments.profile else []
    for way in ("compute", *arguments.ways, *profiled):
        result = measure(arguments.model, way, prompts, arguments.profile)
        computed = computed or result
        of_way = rows_of(way, result, computed, prompts, arguments.tokens)
        print("\n".join(map(line_of, of_way)), flush=True)
        rows += of_way
    if arguments.json:
        saved = {"where": where, "rounds": arguments.rounds, "rows": rows}
        arguments.json.write_text(json.dumps(saved, indent=1) + "\n")


if __name__ == "__main__":
    main()
