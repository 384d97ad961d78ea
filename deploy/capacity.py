# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Writes CAPACITY.md: what each codec costs a real server, and what follows from it.

The cost is CPU time of the server's process, from its own metrics, for caches that a client
sends and takes over a Unix socket: parsing, checksums, metrics and gRPC are all in it. Memory is
the most that a server of its own has had resident, with the budget of the sidecar.
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
from collections.abc import Callable, Iterator, Sequence
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
# long compared with what it costs to make one.
REPEATS = 6
# Of each codec; later ones cost about as much as the second.
MOST_PRESETS = 2
# CPU seconds for each figure.
ENOUGH = 1.5
LINE_GIGABITS = 100
# Chance of finding every core taken when a cache comes.
MOST_WAITING = 0.01
TEMPLATE = REPOSITORY / "deploy" / "capacity.template"

SIDECAR = REPOSITORY / "deploy" / "kubernetes" / "components" / "sidecar" / "sidecar.yaml"
MIB = 1 << 20
# What the process itself takes of a memory limit; half of the rest is the budget. As
# server/memory_limit.cc has it.
PROCESS = 64 * MIB
# Heads and channels of a layer's keys or values; of DeepSeek-V3 the latent and the rotated key.
MODELS = {"Llama-3-8B": (8, 128), "Qwen2.5-7B": (4, 128), "DeepSeek-V3": (1, 576)}
CONTEXTS = (8192, 32768, 131072)
# For all codecs that hold no tensor.
STREAMING = "int4"


@dataclass(frozen=True)
class Cost:
    """Of one codec: CPU seconds for a GB of cache."""

    ratio: float
    compress: float
    decompress: float


class Server:
    """A kv-compressd, and what it has used of the CPU."""

    def __init__(self, folder: Path, *flags: str) -> None:
        """Starts it on a Unix socket and on loopback."""
        self.socket = f"unix:{folder}/kv.sock"
        self._log = folder / "log"
        command = [str(REPOSITORY / "bin" / "kv-compressd"), "--listen", self.socket]
        command += ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", *flags]
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

    def peak(self) -> int:
        """The most that it has had resident, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"(?m)^VmHWM:\s+(\d+) kB$", status)[0]) * 1024

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
def server(*flags: str) -> Iterator[Server]:
    """A server for the measurements."""
    with tempfile.TemporaryDirectory() as folder:
        running = Server(Path(folder), *flags)
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


def keys(heads: int, tokens: int, channels: int) -> npt.NDArray[np.generic]:
    """Noise around what tokens have in common, which klt finds."""
    random = np.random.default_rng(1)
    tensor = np.empty((1, heads, tokens, channels), ml_dtypes.bfloat16)
    common = random.standard_normal((tokens, 16), np.float32)
    for head in tensor[0]:
        mixed = common @ random.standard_normal((16, channels), np.float32) / 4
        mixed += 0.25 * random.standard_normal(mixed.shape, np.float32)
        head[:] = mixed.astype(ml_dtypes.bfloat16)
    return tensor


def sidecar_limit() -> int:
    """The memory limit of the sidecar as shipped, in bytes."""
    found = re.findall(r"(?m)^ +memory: (\d+)Gi$", SIDECAR.read_text())
    if len(set(found)) != 1:
        sys.exit("the sidecar's memory limit is not understood")
    return int(found[0]) << 30


def memory(codec: str, tensor: npt.NDArray[np.generic], budget: int) -> str:
    """What a server with this budget has resident at most, or that it refuses."""
    with (
        server("--memory-budget-bytes", str(budget)) as running,
        kvcompress.Client(running.socket) as client,
    ):
        try:
            client.compress({"layer_0_key": tensor}, codec=codec)
        except kvcompress.KVCompressError as error:
            print(error, file=sys.stderr)
            return "refused"
        return f"{running.peak() / MIB:.0f} MiB"


def holders() -> list[str]:
    """A codec that streams, and every codec that holds a tensor."""
    with server() as running, kvcompress.Client(running.socket) as client:
        codecs = client.server_info().codecs
    return [STREAMING, *(codec.name for codec in codecs if not codec.streaming)]


def memory_table(codecs: Sequence[str], budget: int) -> list[str]:
    """A row for each model and length of context."""
    rows = []
    for model, (heads, channels) in MODELS.items():
        for tokens in CONTEXTS:
            tensor = keys(heads, tokens, channels)
            cells = [memory(codec, tensor, budget) for codec in codecs]
            shape = f"[1,{heads},{tokens},{channels}]"
            size = f"{tensor.nbytes / MIB:.0f} MiB"
            rows.append(row(model, f"{tokens >> 10}k", shape, size, *cells))
            print(rows[-1], file=sys.stderr)
    return rows


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
        info = client.server_info()
        choices = [
            (codec.name, preset)
            for codec in info.codecs
            for preset in codec.presets[:MOST_PRESETS] or ("",)
        ]
        for codec, preset in choices:
            name = f"{codec}:{preset}" if preset else codec
            result = client.compress(cache, codec=name)
            artefact = result.artefact
            cost = Cost(
                result.report.compression_ratio,
                running.cost(lambda n=name: client.compress(cache, codec=n), gigabytes),  # type: ignore[misc]
                running.cost(lambda a=artefact: client.decompress(a), gigabytes),  # type: ignore[misc]
            )
            costs[f"`{codec}`{', ' + preset if preset else ''}"] = cost
            print(codec, preset, cost, file=sys.stderr)
        ways = {"Unix socket": costs["`int4`"].compress}
        with kvcompress.Client(running.address) as remote:
            act = lambda: remote.compress(cache, codec="int4")  # noqa: E731
            ways["TCP on loopback"] = running.cost(act, gigabytes)
    return costs, ways, info.version


def today() -> str:
    """The date."""
    return datetime.now(UTC).strftime("%Y-%m-%d")


def filled_memory() -> dict[str, str]:
    """Measures memory, and returns what the template has of it."""
    limit = sidecar_limit()
    budget, codecs = (limit - PROCESS) // 2, holders()
    heads = ["model", "context", "tensor", "its size", *(f"`{name}`" for name in codecs)]
    return {
        "limit": f"{limit >> 30} GiB",
        "budget": f"{budget // MIB:,} MiB",
        "holders": "\n".join([row(*heads), row(*["---"] * len(heads))]),
        "memory": "\n".join(memory_table(codecs, budget)),
        "memory_machine": processor(),
        "memory_date": today(),
    }


def write_memory() -> None:
    """Writes that part of the page anew, and leaves the others."""
    begin, end = "## Memory\n", "## Sidecar or shared pool\n"
    template, page = TEMPLATE.read_text(), TARGET.read_text()
    part = template[template.index(begin) : template.index(end)].format(**filled_memory())
    TARGET.write_text(page[: page.index(begin)] + part + page[page.index(end) :])


def write_page() -> None:
    """Measures all of it and writes the page."""
    memory_part = filled_memory()
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
        for name, cost in sorted(costs.items(), key=lambda item: item[1].ratio)
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
        date=today(),
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
        **memory_part,
    )
    TARGET.write_text(text)


if __name__ == "__main__":
    if sys.argv[1:] == ["--memory"]:
        write_memory()
    else:
        write_page()
