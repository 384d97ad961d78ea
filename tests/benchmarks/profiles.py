# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Measures `klt` with a profile next to `ecsq`, whole caches on one thread; see tests/benchmark."""

import argparse
import ctypes
import datetime
import json
import os
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from report import processor

LAYERS, HEADS, CHANNELS, SIGNALS = 10, 3, 64, 400
BASE = "ecsq:contract"
# What `ultra` should reach of BASE, to encode and to decode, by the set of kernels.
AIMS = {"amx": (0.4, 0.6), "avx512": (0.4, 1.0), "avx2": (0.15, 0.6)}


@dataclass(frozen=True)
class Task:
    """A way to compress, and where its profile is."""

    codec: str
    profile: ctypes.c_void_p | None

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"{self.codec}, profile" if self.profile else self.codec


def made_cache(tokens: int, seed: int) -> bytes:
    """A safetensors file of layers that repeat each other: values without RoPE."""
    random = np.random.default_rng(seed)
    mixing = np.random.default_rng(7)
    spread = np.exp2(-np.arange(SIGNALS) / 40).astype(np.float32)
    signals = random.standard_normal((tokens, SIGNALS), np.float32) * spread
    entries: dict[str, dict[str, object]] = {}
    data: list[bytes] = []
    size = HEADS * tokens * CHANNELS * 2
    for layer in range(LAYERS):
        for part in ("key", "value"):
            values = signals @ mixing.standard_normal((SIGNALS, HEADS * CHANNELS), np.float32)
            values += 0.1 * random.standard_normal(values.shape, np.float32)
            heads: NDArray[np.float32] = np.ascontiguousarray(
                values.reshape(tokens, HEADS, CHANNELS).swapaxes(0, 1), np.float32
            )
            begin = len(data) * size
            entries[f"layer_{layer}_{part}"] = {
                "dtype": "BF16",
                "shape": [1, HEADS, tokens, CHANNELS],
                "data_offsets": [begin, begin + size],
            }
            bits = heads.view(np.uint32) >> 16
            data.append(bits.astype(np.uint16).tobytes())
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header)) + header + b"".join(data)


def made_profile(binaries: Path) -> bytes:
    """One that is trained on made caches."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for seed in range(4):
            paths.append(Path(folder) / f"{seed}.safetensors")
            paths[-1].write_bytes(made_cache(1024, seed))
        output = Path(folder) / "made.profile"
        options = ["-model-label", "made", "-rope-theta", "0"]
        subprocess.run(
            [binaries / "kv-compress", "-train-profile", output, *options, *paths],
            check=True,
            capture_output=True,
        )
        return output.read_bytes()


class Library:
    """The library of the benchmark."""

    def __init__(self, path: Path) -> None:
        """Loads it."""
        self._library = ctypes.CDLL(str(path))
        self._library.kvb_sets.restype = ctypes.c_char_p
        self._library.kvb_profile.restype = ctypes.c_void_p
        for name in ("kvb_cache_encode", "kvb_cache_decode"):
            getattr(self._library, name).restype = ctypes.c_int64
        self.sets: list[str] = self._library.kvb_sets().decode().split(",")

    def select(self, kernels: str) -> None:
        """Uses a set of kernels from now on."""
        if not self._library.kvb_select(kernels.encode()):
            raise SystemExit(f"no kernels {kernels}, only {', '.join(self.sets)}")

    def load(self, profile: bytes) -> ctypes.c_void_p:
        """Loads a profile."""
        found = self._library.kvb_profile(profile, ctypes.c_uint64(len(profile)))
        if not found:
            raise SystemExit("the profile is not one")
        return ctypes.c_void_p(found)

    def encode(self, task: Task, source: bytes) -> int:
        """Compresses a cache, which is kept; its size."""
        size: int = self._library.kvb_cache_encode(
            task.codec.encode(), task.profile, source, ctypes.c_uint64(len(source))
        )
        if size < 0:
            raise SystemExit(f"{task.name} failed")
        return size

    def decode(self, task: Task) -> None:
        """Restores what was kept."""
        if self._library.kvb_cache_decode(task.profile) < 0:
            raise SystemExit(f"{task.name} was not restored")


def seconds(work: Callable[[], object]) -> float:
    """Processor time of this thread."""
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def measure(
    library: Library, sets: list[str], tasks: list[Task], source: bytes, rounds: int
) -> list[str]:
    """Rows of the table: medians of rounds, in which all take turns."""
    values = len(source) // 2
    times: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    sizes: dict[str, int] = {}
    for number in range(rounds + 1):
        for kernels in sets:
            library.select(kernels)
            for task in tasks:
                if number == 0:
                    sizes[task.name] = library.encode(task, source)
                    continue
                encode, decode = times.setdefault((kernels, task.name), ([], []))
                encode.append(seconds(partial(library.encode, task, source)))
                decode.append(seconds(partial(library.decode, task)))
    speeds = {
        key: [values / statistics.median(side) / 1e6 for side in both]
        for key, both in times.items()
    }
    return [
        f"| {name} | {kernels} | {len(source) / sizes[name]:.2f} | {encode:,.0f} | {decode:,.0f}"
        f" | {encode / speeds[kernels, BASE][0]:.2f} | {decode / speeds[kernels, BASE][1]:.2f} |"
        for (kernels, name), (encode, decode) in speeds.items()
    ]


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--binaries", type=Path, required=True)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--presets", default="high,max,ultra")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kernels", default="", help="one or several, as amx,avx512")
    arguments = parser.parse_args()
    if (arguments.profile is None) != (arguments.cache is None):
        parser.error("--profile and --cache go together")
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    library = Library(arguments.library)
    sets = arguments.kernels.split(",") if arguments.kernels else library.sets[:1]
    if arguments.profile is None:
        profile, source = made_profile(arguments.binaries), made_cache(1024, 100)
    else:
        profile, source = arguments.profile.read_bytes(), arguments.cache.read_bytes()
    loaded = library.load(profile)
    presets = arguments.presets.split(",")
    tasks = [Task(BASE, None), *(Task(f"klt:{preset}", loaded) for preset in presets)]
    rows = measure(library, sets, tasks, source, arguments.rounds)
    model, _ = processor()
    name = "made" if arguments.cache is None else arguments.cache.name
    print(
        f"{datetime.date.today()}, {model}, load average {os.getloadavg()[0]:.1f}; cache {name},"
        f" {len(source) // 2:,} values; medians of processor time of {arguments.rounds} rounds on"
        " one thread, with all metrics.\n"
    )
    for kernels in sets:
        if aims := AIMS.get(kernels):
            print(
                f"Aims of ultra beside {BASE} with {kernels}: {aims[0]} to encode,"
                f" {aims[1]} to decode.\n"
            )
    print(
        f"| codec | kernels | smaller | encode, M values/s | decode | of {BASE}: encode | decode |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
