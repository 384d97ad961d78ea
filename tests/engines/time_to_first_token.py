# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Measures the time to the first token in vLLM on a CPU: computed, or restored from files.

    python tests/engines/time_to_first_token.py --model FOLDER [--tokens 1024 2048 4096]

A document is the prompt, with another question in each round; between rounds the engine's own cache
and the tier in host memory are emptied. Ways: `compute` (no tier), `raw` (vLLM's own tier of
files, blocks as they are) and a codec each. Files are read again, so that they come from the
system's cache of files unless it is small. Prints a table in Markdown; with --json the rounds too.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]

HERE = Path(__file__).parent
_HOST = {
    "spec_name": "HostTieringSpec",
    "spec_module_path": "kvcompress.integrations._vllm_host",
}


def job_of(way: str, folder: str) -> dict[str, Any]:
    """Gives what vllm_engine.py needs for a way."""
    size = {"cpu_bytes_to_use": 1 << 29}
    if way == "compute":
        return {"extra": None}
    if way == "raw":
        tiers = {"secondary_tiers": [{"type": "fs", "root_dir": folder}]}
        return {"connector": "OffloadingConnector", "module": None, "extra": size | _HOST | tiers}
    return {"extra": {**size, "folder": folder, "codec": way}}


def measure(model: str, way: str, prompts: list[list[list[int]]]) -> dict[str, Any]:
    """Runs all rounds of a way in one engine; the first of each length fills the tier."""
    requests: list[Any] = []
    for rounds in prompts:
        for prompt in rounds:
            requests += [prompt, {"reset": True}]
    alone = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        job = {"model": model, "tokens": 1, "requests": requests, **job_of(way, folder)}
        job["max_model_len"] = max(len(rounds[0]) for rounds in prompts) + 64
        done = subprocess.run(
            [sys.executable, HERE / "vllm_engine.py"],
            input=json.dumps(job).encode(),
            stdout=subprocess.PIPE,
            env={**alone, **os.environ, "HF_HUB_OFFLINE": "1"},
            check=True,
        )
    return dict(json.loads(done.stdout))


def quantile(values: list[float], share: float) -> float:
    """Gives the smallest value that so many are not above."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def rows_of(
    way: str, result: dict[str, Any], prompts: list[list[list[int]]], lengths: list[int]
) -> list[str]:
    """Gives the table's rows of a way."""
    raw, stored = (
        sum(
            v
            for name, v in result["counters"].items()
            if f"{kind}_bytes" in name and "save" in name
        )
        for kind in ("raw", "artefact")
    )
    ratio = "" if not stored else f"{raw / stored:.2f}"
    found, rows = iter(result["results"]), []
    for rounds, length in zip(prompts, lengths, strict=True):
        each = [next(found) for _ in rounds][1:]
        seconds = [one["seconds"] for one in each]
        hit = sum(one["served"] for one in each) / (len(each) * length)
        times = f"{quantile(seconds, 0.5):.2f} | {quantile(seconds, 0.99):.2f}"
        rows.append(f"| {length} | {way} | {ratio} | {100 * hit:.0f} % | {times} |")
    return rows


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", type=Path, default=HERE.parents[1] / "core" / "FORMAT.md")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 2048, 4096])
    parser.add_argument("--ways", nargs="+", default=["compute", "raw", "lossless", "ecsq", "klt"])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    tokenizer = Tokenizer.from_file(f"{arguments.model}/tokenizer.json")
    ids = tokenizer.encode(arguments.text.read_text()).ids
    # No document is the beginning of another, so that none finds another's blocks.
    prompts = [
        [
            ids[index : index + length] + tokenizer.encode(f"\nQuestion {each}:").ids
            for each in range(arguments.rounds + 1)
        ]
        for index, length in enumerate(arguments.tokens)
    ]
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} processors, ", end="")
    print(f"load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d', time.gmtime())}\n")
    print("| tokens | way | smaller | from files | first token, s, p50 | p99 |")
    print("| --- | --- | --- | --- | --- | --- |")
    results = {}
    for way in arguments.ways:
        results[way] = measure(arguments.model, way, prompts)
        print("\n".join(rows_of(way, results[way], prompts, arguments.tokens)), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
