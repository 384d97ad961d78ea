# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""How fast threads restore to memory that is there, beside memcpy; see tests/benchmark."""

import ctypes
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rounds import in_turns

CODECS = ("int4", "int8", "ecsq:contract", "lossless", "klt:contract")
Bytes = NDArray[np.uint8]


def copy(pool: ThreadPoolExecutor, source: Bytes, target: Bytes, threads: int) -> float:
    """Seconds that so many threads take to copy, each a part of it."""
    begun = time.perf_counter()
    parts = zip(np.array_split(source, threads), np.array_split(target, threads), strict=True)
    list(pool.map(lambda part: np.copyto(part[1], part[0]), parts))
    return time.perf_counter() - begun


def restore(library: ctypes.CDLL, artefact: bytes, target: Bytes, threads: int) -> float:
    """Seconds that so many threads of the library take to restore to `target`."""
    begun = time.perf_counter()
    restored = library.kvb_memory_restore(
        artefact,
        ctypes.c_uint64(len(artefact)),
        target.ctypes.data_as(ctypes.c_char_p),
        ctypes.c_uint64(target.nbytes),
        ctypes.c_uint(threads),
    )
    if restored != target.nbytes:
        raise SystemExit("not all was restored")
    return time.perf_counter() - begun


def restore_file(binary: Path, artefact: Path) -> float:
    """Seconds that two threads take to restore to a new file, as the report has them."""
    output = artefact.with_suffix(".restored")
    command: list[str | Path] = [binary, "-decompress", artefact, "-output", output]
    done = subprocess.run([*command, "-threads", "2", "-quiet"], stdout=subprocess.PIPE, check=True)
    output.unlink()
    milliseconds: float = json.loads(done.stdout)["processing_time_ms"]
    return milliseconds / 1e3


def table(binary: Path, library: Path, cache: Path, size: int, rounds: int) -> Iterator[str]:
    """Rows: medians of rounds, in which all take turns. The cache has `size` bytes of tensors."""
    yield "| codec | GB/s by one thread | two against one | memcpy's | against a new file |\n"
    yield "| --- | --- | --- | --- | --- |\n"
    loaded = ctypes.CDLL(str(library))
    loaded.kvb_memory_restore.restype = ctypes.c_int64
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    path = cache.with_suffix(".kept")
    with ThreadPoolExecutor(2) as pool:
        for codec in CODECS:
            command: list[str | Path] = [binary, "-input", cache, "-output", path, "-quiet"]
            subprocess.run([*command, "-force", "-codec", codec], stdout=subprocess.DEVNULL)
            artefact = path.read_bytes()
            tasks: dict[str, Callable[[], float]] = {
                "copy 1": partial(copy, pool, source, target, 1),
                "copy 2": partial(copy, pool, source, target, 2),
                "restore 1": partial(restore, loaded, artefact, target, 1),
                "restore 2": partial(restore, loaded, artefact, target, 2),
                "file": partial(restore_file, binary, path),
            }
            found = in_turns(rounds, tasks)
            took = {name: statistics.median(seconds) for name, seconds in found.items()}
            yield (
                f"| {codec} | {size / 1e9 / took['restore 1']:.2f}"
                f" | {took['restore 1'] / took['restore 2']:.2f}x"
                f" | {took['copy 1'] / took['copy 2']:.2f}x"
                f" | {took['file'] / took['restore 2']:.2f}x |\n"
            )
    path.unlink()
