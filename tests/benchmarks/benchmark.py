# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Measures kernels and codecs next to their peers; see tests/benchmark."""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# NumPy would ask for huge pages: caches arrive in ordinary ones.
os.environ["NUMPY_MADVISE_HUGEPAGE"] = "0"

import report
from workload import Shape, Workload

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass
class Task:
    """Something measured, and how many bytes of values it goes through."""

    name: str
    size: int
    values: int
    run: Callable[[], object]


def shapes(count: int) -> dict[str, Shape]:
    """What codecs get, by what their names end with: groups of 256 dimensions, or 192 alone."""
    tokens = min(1024, count // 256)
    found = {"": Shape(heads=4, tokens=tokens)}
    if count >= 4096 * 256:
        found[", 256 x 4096"] = Shape(heads=4, tokens=4096)
    for tokens in (1024, 4096):
        shape = Shape(heads=3, tokens=tokens, n=1)
        if shape.elements(count) <= count:
            found[f", 192 x {tokens}"] = shape
    return found


def tasks(work: Workload) -> list[Task]:
    """Everything measured, in the order of a round."""
    found = []

    def add(name: str, dtype: str, run: Callable[[], object]) -> None:
        found.append(Task(name, work.size(dtype), work.count, run))

    add("memcpy", "F32", work.copy)
    add("memcpy, BF16", "BF16", work.copy_bf16)
    add("read", "F32", work.read)
    add("write", "F32", work.fill)
    add("ggml q4_0 encode", "F32", work.ggml_encode)
    add("NumPy int4 encode", "F32", work.numpy_encode)
    for dtype in ("F32", "F16", "BF16"):
        for bits, rotation, name in ((4, 1, "int4"), (4, 64, "int4-hadamard"), (8, 1, "int8")):
            key = f"{name} {dtype}"
            add(f"{key} encode", dtype, work.encoder(key, bits, dtype, rotation))
            add(f"{key} decode", dtype, work.decoder(key, bits, dtype, rotation))
    add("ggml q4_0 decode", "F32", work.ggml_decode)

    def add_codec(key: str, codec: str, role: str, shape: Shape) -> None:
        values = shape.elements(work.count) * (work.count // shape.elements(work.count))
        for side, run in (
            ("encode", work.codec_encoder(key, codec, role, shape)),
            ("decode", work.codec_decoder(key, codec, role, shape)),
        ):
            found.append(Task(f"{key} {side}", 2 * values, values, run))

    for name, shape in shapes(work.count).items():
        for codec in ("ecsq:contract", "klt:contract"):
            for role in ("key", "value"):
                add_codec(f"{codec} {role} BF16{name}", codec, role, shape)
    add_codec("lossless BF16", "lossless", "none", shapes(work.count)[""])
    add("zstd-1 BF16 encode", "BF16", work.zstd_encode)
    add("zstd-1 BF16 decode", "BF16", work.zstd_decode)
    add("rANS of ecsq encode", "symbols", work.rans_encode)
    add("rANS of ecsq decode", "symbols", work.rans_decode)
    add("htscodecs encode", "symbols", work.htscodecs_encode)
    add("htscodecs decode", "symbols", work.htscodecs_decode)
    return found


def main() -> None:
    """Runs the rounds and prints the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kernels", default="")
    arguments = parser.parse_args()
    if arguments.mib < 1 or arguments.rounds < 1:
        parser.error("--mib and --rounds are at least 1")
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    work = Workload(arguments.library, arguments.mib, arguments.kernels)
    todo = tasks(work)
    times: dict[str, list[float]] = {task.name: [] for task in todo}
    for task in todo:
        task.run()  # makes what later ones read, and touches the memory
    for _ in range(arguments.rounds):
        for task in todo:
            begun = time.thread_time()
            task.run()
            times[task.name].append(time.thread_time() - begun)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    rows = []
    for task in todo:
        seconds = medians[task.name]
        rows.append(report.Row(task.name, task.size / seconds / 1e9, task.values / seconds / 1e6))
    text = report.render(rows, work, arguments.rounds)
    print(text, end="")
    if arguments.save:
        report.save(work.kernels, text, arguments.output)


if __name__ == "__main__":
    main()
