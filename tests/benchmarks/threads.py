# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Measures what several threads of a call bring, and what `auto` costs; see tests/benchmark."""

import argparse
import ctypes
import json
import multiprocessing
import os
import resource
import statistics
import struct
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import busiest
import grpc
import kept_memory
import numpy as np
from caches import CHANNELS, HEADS, make_tensor, write_cache
from numpy.typing import NDArray
from rounds import in_turns
from simulation import simulate, stages, work

from kvcompress.v1 import compression_service_pb2 as pb
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

MIB = 1 << 20
CODECS = ("klt:contract", "auto", "ecsq:contract", "int4")
SIMULATED = ("klt:contract", "klt:ultra", "ecsq:contract")
LAYERS = 64  # tensors of a simulated cache
TABLES = ("cores", "threads", "processes", "auto", "stream", "fairness", "busiest", "memory")


@dataclass(frozen=True)
class Taken:
    """Seconds that something took."""

    wall: float
    processor: float


def timed(command: list[str | Path]) -> Taken:
    """Runs a command line that succeeds."""
    busiest.remove_output(command)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    done = subprocess.run(command, capture_output=True)
    wall = time.perf_counter() - begun
    if done.returncode not in (0, 2):  # 2 says that bounds were missed
        raise SystemExit(done.stderr.decode())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Taken(wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def together(commands: list[list[str | Path]]) -> Taken:
    """Runs command lines at the same time, until the last has ended."""
    for command in commands:
        busiest.remove_output(command)
    begun = time.perf_counter()
    processes = [subprocess.Popen(each, stdout=subprocess.DEVNULL) for each in commands]
    for process in processes:
        if process.wait() not in (0, 2):
            raise SystemExit(f"{process.args!r} failed")
    return Taken(time.perf_counter() - begun, 0)


def medians(rounds: int, tasks: dict[str, Callable[[], Taken]]) -> dict[str, Taken]:
    """Of each task, which take turns."""
    return {
        name: Taken(
            statistics.median(each.wall for each in all_of_it),
            statistics.median(each.processor for each in all_of_it),
        )
        for name, all_of_it in in_turns(rounds, tasks).items()
    }


@contextmanager
def daemon(binary: Path, folder: Path, *flags: str) -> Iterator[tuple[str, int]]:
    """A fresh kv-compressd: its address and its process."""
    address = f"unix:{folder}/threads"
    command: list[str | Path] = [
        binary,
        "--listen",
        address,
        "--metrics-listen=",
        "--log-level",
        "error",
        *flags,
    ]
    process = subprocess.Popen(command)
    try:
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(30)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait()


def processor_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def compare_threads(binary: Path, caches: dict[str, Path], rounds: int) -> Iterator[str]:
    """Rows: one thread against two, within the process, both ways."""
    yield "| codec, cache | to compress | to restore | processor time, both |\n"
    yield "| --- | --- | --- | --- |\n"
    for name, cache in caches.items():
        for codec in CODECS:
            artefact = cache.with_suffix(".kvc")

            def compress(threads: int, codec: str = codec, cache: Path = cache) -> Taken:
                out = cache.with_suffix(".kvc")
                files: list[str | Path] = ["-input", cache, "-output", out, "-codec", codec]
                return timed([binary, *files, "-threads", str(threads), "-quiet"])

            def restore(threads: int, artefact: Path = artefact) -> Taken:
                out = artefact.with_suffix(".restored")
                files: list[str | Path] = ["-decompress", artefact, "-output", out]
                return timed([binary, *files, "-threads", str(threads), "-quiet"])

            found = medians(
                rounds,
                {
                    f"{side} {threads}": partial(run, threads)
                    for side, run in (("compress", compress), ("restore", restore))
                    for threads in (1, 2)
                },
            )
            there, back = (
                found[f"{side} 1"].wall / found[f"{side} 2"].wall
                for side in ("compress", "restore")
            )
            more = sum(found[f"{side} 2"].processor for side in ("compress", "restore"))
            less = sum(found[f"{side} 1"].processor for side in ("compress", "restore"))
            yield f"| {codec}, {name} | {there:.2f}x | {back:.2f}x | {more / less:.2f} |\n"


def compare_processes(binary: Path, cache: Path, rounds: int) -> Iterator[str]:
    """Rows: what two processes of one thread each do in the time of one: the machine's bound."""
    yield "| codec | to compress | to restore |\n| --- | --- | --- |\n"
    for codec in ("klt:contract", "ecsq:contract", "int4"):
        one: list[str | Path] = ["-threads", "1", "-quiet", "-output"]
        outputs = [cache.with_suffix(f".{i}") for i in range(2)]
        artefact = cache.with_suffix(".kvc")
        sides: dict[str, list[str | Path]] = {
            "compress": [binary, "-input", cache, "-codec", codec, *one],
            "restore": [binary, "-decompress", artefact, *one],
        }
        timed([*sides["compress"], artefact])
        found = medians(
            rounds,
            {
                f"{side} {count}": partial(together, [[*how, each] for each in outputs[:count]])
                for side, how in sides.items()
                for count in (1, 2)
            },
        )
        there, back = (
            2 * found[f"{side} 1"].wall / found[f"{side} 2"].wall
            for side in ("compress", "restore")
        )
        yield f"| {codec} | {there:.2f}x | {back:.2f}x |\n"


def compare_auto(binary: Path, caches: dict[str, Path], rounds: int) -> Iterator[str]:
    """Rows: processor time of `auto` against the codec that it keeps most often."""
    yield "| cache | kept | processor time of `auto` against it |\n| --- | --- | --- |\n"
    for name, cache in caches.items():
        command: list[str | Path] = [binary, "-input", cache, "-metrics-only"]
        command += ["-verbose", "-quiet", "-format", "json", "-threads", "1", "-codec"]
        report = json.loads(subprocess.run([*command, "auto"], stdout=subprocess.PIPE).stdout)
        kept = Counter(tensor["codec"] for tensor in report["tensors"]).most_common(1)[0][0]
        found = medians(
            rounds,
            {codec: partial(timed, [*command, codec]) for codec in ("auto", kept)},
        )
        ratio = found["auto"].processor / found[kept].processor
        yield f"| {name} | {kept} | {ratio:.2f} |\n"


def stream(binary: Path, cache: Path, size: int, rounds: int) -> Iterator[str]:
    """Rows: int4 through a Unix socket, with one thread of the server for a call and with two."""
    walls: dict[str, float] = {}
    yield "| int4 of BF16 through a Unix socket | value |\n| --- | --- |\n"
    server = binary.with_name("kv-compressd")
    with tempfile.TemporaryDirectory() as folder:
        for threads in ("1", "2"):
            with daemon(server, Path(folder), "--threads", threads) as (address, pid):
                files: list[str | Path] = ["-input", cache, "-output", cache.with_suffix(".kvc")]
                how = ["-server", address, "-codec", "int4", "-quiet"]
                taken = []
                for _ in range(rounds + 1):
                    before = processor_seconds(pid)
                    client = timed([binary, *files, *how])
                    taken.append((client, processor_seconds(pid) - before))
            of_server = statistics.mean(server for _, server in taken[1:]) / size * 1e9
            of_client = statistics.median(client.processor for client, _ in taken[1:]) / size * 1e9
            walls[threads] = statistics.median(client.wall for client, _ in taken[1:])
            what = f"processor seconds for a GB, {threads} threads"
            yield f"| {what}, server | {of_server:.2f} |\n"
            yield f"| {what}, both ends | {of_server + of_client:.2f} |\n"
    yield f"| speed with two threads against one | {walls['1'] / walls['2']:.2f}x |\n"


def small_calls(address: str, tensor: NDArray[np.uint16], count: int) -> list[float]:
    """Seconds of calls with 1 MB each, one after the other."""
    tokens = MIB // (2 * HEADS * CHANNELS)
    entry = {"dtype": "BF16", "shape": [1, HEADS, tokens, CHANNELS], "data_offsets": [0, MIB]}
    header = json.dumps({"layer_0_key": entry}).encode()
    payload = struct.pack("<Q", len(header)) + header
    payload += np.ascontiguousarray(tensor[:, :tokens]).tobytes()
    requests = [
        pb.CompressRequest(options=pb.CompressOptions(codec="int4")),
        pb.CompressRequest(safetensors=payload),
    ]
    found = []
    with grpc.insecure_channel(address) as channel:
        stub = CompressionServiceStub(channel)
        for _ in range(count):
            begun = time.perf_counter()
            for _ in stub.Compress(iter(requests)):
                pass
            found.append(time.perf_counter() - begun)
    return sorted(found)


def send_large(address: str, tensor: NDArray[np.uint16], size: int, codec: str) -> None:
    """Compresses a cache of that tensor again and again, made while it is sent."""
    count = max(1, size // tensor.nbytes)
    entries = {
        f"layer_{i}_key": {
            "dtype": "BF16",
            "shape": [1, HEADS, tensor.shape[1], CHANNELS],
            "data_offsets": [i * tensor.nbytes, (i + 1) * tensor.nbytes],
        }
        for i in range(count)
    }
    header = json.dumps(entries).encode()
    flat = tensor.tobytes()

    def requests() -> Iterator[pb.CompressRequest]:
        yield pb.CompressRequest(options=pb.CompressOptions(codec=codec))
        yield pb.CompressRequest(safetensors=struct.pack("<Q", len(header)) + header)
        for _ in range(count):
            for begin in range(0, len(flat), MIB):
                yield pb.CompressRequest(safetensors=flat[begin : begin + MIB])

    with grpc.insecure_channel(address) as channel:
        for _ in CompressionServiceStub(channel).Compress(requests()):
            pass


def fairness(binary: Path, tensor: NDArray[np.uint16], large: int, count: int) -> Iterator[str]:
    """Rows: small calls alone and next to a large one of the same client."""
    yield "| beside | p99 of 1 MB, ms | of alone |\n| --- | --- | --- |\n"
    processes = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        daemon(binary.with_name("kv-compressd"), Path(folder)) as (address, _),
    ):
        small_calls(address, tensor, 20)
        alone = small_calls(address, tensor, count)[int(count * 0.99)]
        yield f"| nothing | {alone * 1e3:.1f} | 1 |\n"
        for codec in ("int4", "klt:contract"):
            # In a process of its own: threads of Python would wait for one another.
            other = processes.Process(target=send_large, args=(address, tensor, large, codec))
            other.start()
            time.sleep(0.5)
            beside: list[float] = []
            while not beside or (other.is_alive() and len(beside) < count):
                beside += small_calls(address, tensor, 10)
            other.join()
            p99 = sorted(beside)[int(len(beside) * 0.99)]
            yield (
                f"| {codec}, {large / 1e9:.1f} GB ({len(beside)} calls) | {p99 * 1e3:.1f} | "
                f"{p99 / alone:.1f} |\n"
            )


def many_cores(library: Path, tensor: NDArray[np.uint16], threads: int) -> Iterator[str]:
    """Rows: how much sooner so many threads would be done, by the times of pieces."""
    trace = ctypes.CDLL(str(library)).kvb_trace
    trace.restype = ctypes.c_int64
    times = (ctypes.c_double * (1 << 16))()
    yield f"| codec | tensors | to compress by {threads} | to restore |\n"
    yield "| --- | --- | --- | --- |\n"
    for codec in SIMULATED:
        for tensors, places in ((1, threads), (LAYERS, 2)):
            ratios = []
            for decodes in (0, 1):
                size = trace(
                    codec.encode(),
                    1,
                    ctypes.c_uint64(HEADS),
                    ctypes.c_uint64(tensor.shape[1]),
                    ctypes.c_uint64(CHANNELS),
                    tensor.ctypes.data_as(ctypes.c_char_p),
                    decodes,
                    ctypes.c_size_t(places),
                    times,
                    ctypes.c_size_t(len(times)),
                )
                if not 0 < size <= len(times):
                    raise SystemExit(f"{codec} gave no trace")
                one = stages(times[:size])
                taken = simulate([one] * tensors, threads, places)
                ratios.append(work(one) * tensors / taken)
            yield f"| {codec} | {tensors} | {ratios[0]:.1f}x | {ratios[1]:.1f}x |\n"


def main() -> None:
    """Prints tables in Markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", type=Path, required=True)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--cache", type=Path, action="append", default=[])
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--small-calls", type=int, default=300)
    parser.add_argument("--large-gb", type=float, default=8)
    parser.add_argument("--only", choices=TABLES, action="append")
    arguments = parser.parse_args()
    binary = arguments.binaries / "kv-compress"
    tensor = make_tensor(arguments.tokens)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        layers = Path(folder) / "layers.safetensors"
        one = Path(folder) / "one.safetensors"
        size = write_cache(layers, tensor, arguments.layers)
        bytes_of_tensors = 2 * arguments.layers * tensor.nbytes
        write_cache(one, make_tensor(2 * arguments.tokens), 1)
        caches = {f"{2 * arguments.layers} tensors": layers, "2 tensors": one}
        real = {path.stem: path for path in arguments.cache}
        tables = (
            many_cores(arguments.library, tensor, 16),
            compare_threads(binary, caches, arguments.rounds),
            compare_processes(binary, layers, arguments.rounds),
            compare_auto(binary, {**caches, **real}, arguments.rounds),
            stream(binary, layers, size, arguments.rounds),
            fairness(binary, tensor, int(arguments.large_gb * 1e9), arguments.small_calls),
            busiest.table(binary, layers, 6 * arguments.tokens),
            kept_memory.table(
                binary, arguments.library, layers, bytes_of_tensors, arguments.rounds
            ),
        )
        for name, rows in zip(TABLES, tables, strict=True):
            if arguments.only and name not in arguments.only:
                continue
            for row in rows:
                print(row, end="", flush=True)
            print()


if __name__ == "__main__":
    main()
