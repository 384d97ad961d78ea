# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Writes CAPACITY.md: what each codec costs a real server, and what follows from it.

The cost is CPU time of the server's process, from its own metrics, for caches that a client
sends and takes over a Unix socket: parsing, checksums, metrics and gRPC are all in it.
"""

import contextlib
import math
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

import kvcompress

REPOSITORY = Path(__file__).resolve().parents[1]
SAMPLE = REPOSITORY / "tests" / "data" / "smollm2_kjv_96_bf16.safetensors"
TARGET = REPOSITORY / "deploy" / "CAPACITY.md"
# The sample's tokens over and over: klt needs more than it has, and a call should be
# long beside what it costs to make one.
REPEATS = 6
CHOICES = (
    ("lossless", ""),
    ("int8", ""),
    ("int4", ""),
    ("int4-hadamard", ""),
    ("int4-kivi", ""),
    ("ecsq", "contract"),
    ("ecsq", "high"),
    ("klt", "contract"),
    ("klt", "high"),
    ("auto", ""),
)
# CPU seconds for each figure.
ENOUGH = 1.5
LINE_GIGABITS = 100
# Chance of finding every core taken when a cache comes.
MOST_WAITING = 0.01
TEMPLATE = REPOSITORY / "deploy" / "capacity.template"


@dataclass(frozen=True)
class Cost:
    """Of one codec: CPU seconds for a GB of cache."""

    ratio: float
    compress: float
    decompress: float


class Server:
    """A kv-compressd, and what it has used of the CPU."""

    def __init__(self, folder: Path) -> None:
        """Starts it on a Unix socket and on loopback."""
        self.socket = f"unix:{folder}/kv.sock"
        self._log = folder / "log"
        command = [str(REPOSITORY / "bin" / "kv-compressd"), "--listen", self.socket]
        command += ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log)
        while "SERVING" not in self._log.read_text():
            if self.process.poll() is not None:
                sys.exit(self._log.read_text())
            time.sleep(0.01)
        found = re.search(r"(127\S+); metrics on (\S+);", self._log.read_text())
        if found is None:
            sys.exit("the server's first line is not understood")
        self.address, self._metrics = found[1], found[2]

    def cpu_seconds(self) -> float:
        """Since the start."""
        with urllib.request.urlopen(f"{self._metrics}/metrics") as reply:  # noqa: S310
            page = reply.read().decode()
        return float(re.findall(r"(?m)^process_cpu_seconds_total (\S+)", page)[0])

    def cost(self, act: Callable[[], object], gigabytes: float) -> float:
        """CPU seconds for a GB, of an action that moves so many."""
        act()
        begun, times, used = self.cpu_seconds(), 0, 0.0
        while used < ENOUGH:
            act()
            times += 1
            used = self.cpu_seconds() - begun
        return used / times / gigabytes


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """A server for the measurements."""
    with tempfile.TemporaryDirectory() as folder:
        running = Server(Path(folder))
        try:
            yield running
        finally:
            running.process.terminate()
            running.process.wait()


def long_cache() -> dict[str, npt.NDArray[np.generic]]:
    """The sample with its tokens repeated."""
    with np.errstate(all="ignore"):
        tensors = load_file(SAMPLE)
    return {
        name: np.concatenate([tensor.view(ml_dtypes.bfloat16)] * REPEATS, axis=-2)
        for name, tensor in tensors.items()
    }


def waiting(cores: int, load: float) -> float:
    """Erlang's C: the chance that all cores are taken."""
    if load >= cores:
        return 1
    blocked = 1.0
    for i in range(1, cores + 1):
        blocked = load * blocked / (i + load * blocked)
    return blocked / (1 - load / cores * (1 - blocked))


def cores_for(load: float) -> int:
    """So many that waiting is rare."""
    cores = math.ceil(load)
    while waiting(cores, load) > MOST_WAITING:
        cores += 1
    return cores


def row(*cells: object) -> str:
    """Of a table."""
    return f"| {' | '.join(map(str, cells))} |"


def processor() -> str:
    """As the kernel names it."""
    found = re.search(r"(?m)^model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{found[1] if found else 'unknown processor'}, {os.cpu_count()} cores"


def measure() -> tuple[dict[str, Cost], dict[str, float], str]:
    """The cost of each codec and of each way to the server, and the server's version."""
    cache = long_cache()
    gigabytes = sum(tensor.nbytes for tensor in cache.values()) / 1e9
    costs: dict[str, Cost] = {}
    with server() as running, kvcompress.Client(running.socket) as client:
        version = client.server_info().version
        for codec, preset in CHOICES:
            options = {"codec": f"{codec}:{preset}" if preset else codec}
            result = client.compress(cache, **options)  # type: ignore[arg-type]
            artefact = result.artefact
            if artefact is None:
                sys.exit("no artefact")
            cost = Cost(
                result.report.compression_ratio,
                running.cost(lambda o=options: client.compress(cache, **o), gigabytes),  # type: ignore[misc]
                running.cost(lambda a=artefact: client.decompress(a), gigabytes),  # type: ignore[misc]
            )
            costs[f"`{codec}`{', ' + preset if preset else ''}"] = cost
            print(codec, preset, cost, file=sys.stderr)
        ways = {"Unix socket": costs["`int4`"].compress}
        with kvcompress.Client(running.address) as remote:
            act = lambda: remote.compress(cache, codec="int4")  # noqa: E731
            ways["TCP on loopback"] = running.cost(act, gigabytes)
    return costs, ways, version


def main() -> None:
    """Measures and writes the page."""
    costs, ways, version = measure()
    rate = LINE_GIGABITS / 8
    codecs = [
        row(
            name,
            f"{cost.ratio:.2f}x",
            f"{cost.compress:.2f}",
            f"{cost.decompress:.2f}",
            f"{cost.compress * rate:.0f}",
            f"{cost.decompress * rate:.0f}",
            f"{LINE_GIGABITS / cost.ratio:.0f} Gb/s",
        )
        for name, cost in costs.items()
    ]
    pools, least = [], 0
    for engines in (2, 4, 8, 16, 64):
        for busy in (0.1, 0.5, 2.0):
            each, pool = engines * cores_for(busy), cores_for(engines * busy)
            pools.append(row(engines, busy, each, pool))
            least = least or (engines if busy == 0.5 and pool * 2 <= each else 0)
    cache = long_cache()
    text = TEMPLATE.read_text().format(
        machine=processor(),
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        version=version,
        repeats=REPEATS,
        megabytes=sum(tensor.nbytes for tensor in cache.values()) / 1e6,
        tensors=len(cache),
        tokens=next(iter(cache.values())).shape[-2],
        line=LINE_GIGABITS,
        rate=rate,
        codecs="\n".join(codecs),
        ways="\n".join(row(way, f"{cost:.2f}") for way, cost in ways.items()),
        pools="\n".join(pools),
        wire=1e3 * 8 / LINE_GIGABITS,
        least=least,
    )
    TARGET.write_text(text)


if __name__ == "__main__":
    main()
