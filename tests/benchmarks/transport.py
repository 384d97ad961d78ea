# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Measures what carries caches: streams, shared directories, clients; see tests/benchmark."""

import argparse
import datetime
import json
import mmap
import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
from process_memory import peak
from report import processor, save

import kvcompress
from kvcompress.v1 import compression_service_pb2 as pb
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

RESULTS = Path(__file__).resolve().parent / "results"
MIB = 1 << 20
SHAPE = (1, 4, 4096, 64)
TASKS = ("socket", "echo", "int4", "client", "files streamed", "files named", "embedded")
# Wall and processor seconds of the public Go program for a file like ours, on another day.
GO_SECONDS, GO_PROCESSOR_SECONDS = 6.8, 6.7


def write_cache(path: Path, layers: int) -> int:
    """A cache of F32, 8 MiB for each layer; its size in bytes."""
    size = 4 * int(np.prod(SHAPE))
    names = [f"layer_{layer}_{part}" for layer in range(layers) for part in ("key", "value")]
    entries = {
        name: {"dtype": "F32", "shape": SHAPE, "data_offsets": [i * size, (i + 1) * size]}
        for i, name in enumerate(names)
    }
    header = json.dumps(entries).encode()
    header += b" " * (-(8 + len(header)) % 64)  # values lie where values are due
    rng = np.random.default_rng(1)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for _ in names:
            file.write(rng.standard_normal(size // 4, dtype=np.float32).tobytes())
    return path.stat().st_size


class Peer:
    """One end of the benchmark as a process that reads commands."""

    def __init__(self, *command: str) -> None:
        """Starts it and waits until it is ready."""
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            raise SystemExit("a process of the benchmark has ended")
        return line

    def ask(self, command: str) -> list[float]:
        """Sends a command; the numbers of its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return [float(word) for word in self._line().split()]

    def processor_seconds(self) -> float:
        """Processor time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """Ends it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextmanager
def daemon(binary: Path, folder: Path) -> Iterator[tuple[str, int]]:
    """A fresh kv-compressd: its address and its process."""
    address = f"unix:{folder}/memory"
    process = subprocess.Popen(
        [binary, "--listen", address, "--metrics-listen=", "--log-level", "error"]
    )
    try:
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(30)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait()


def send_generated(address: str, size: int) -> None:
    """Compresses a cache that is made while it is sent."""
    tensor = 4 * MIB
    size -= size % tensor
    entries = {
        f"layer_{index}_key": {
            "dtype": "F32",
            "shape": [1, 4, tensor // 1024, 64],
            "data_offsets": [index * tensor, (index + 1) * tensor],
        }
        for index in range(size // tensor)
    }
    header = json.dumps(entries).encode()
    block = np.random.default_rng(2).standard_normal(MIB // 4, dtype=np.float32).tobytes()

    def requests() -> Iterator[pb.CompressRequest]:
        yield pb.CompressRequest(options=pb.CompressOptions(codec="int4"))
        yield pb.CompressRequest(safetensors=struct.pack("<Q", len(header)) + header)
        chunk = pb.CompressRequest(safetensors=block)
        for _ in range(size // MIB):
            yield chunk

    with grpc.insecure_channel(address) as channel:
        for response in CompressionServiceStub(channel).Compress(requests()):
            last = response.WhichOneof("message")
        assert last == "trailer"


def memory(binary: Path, large: int) -> dict[str, float]:
    """Peaks of fresh servers in MiB: idle, for caches of two sizes, for many streams."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, size in (("none", 0), ("small", 100 * 10**6), ("large", large)):
            with daemon(binary, Path(folder)) as (address, pid):
                if size:
                    send_generated(address, size)
                found[name] = peak(pid) / MIB
    return found


def stream_memory(program: Path, binary: Path, source: Path, folder: Path, count: int) -> float:
    """MiB that a server grows by for each of many streams at once."""
    with daemon(binary, folder) as (address, pid):
        worker = Peer(str(program), "work", address.removeprefix("unix:"), str(source), str(folder))
        worker.ask(f"STREAMS 1 {16 * MIB}")
        one = peak(pid) / MIB
        worker.ask(f"STREAMS {count} {16 * MIB}")
        many = peak(pid) / MIB
        worker.stop()
    return (many - one) / (count - 1)


def read_and_map(path: Path, rounds: int) -> tuple[float, float]:
    """Seconds to go once over a file: copied in pieces of 512 KiB, and mapped; medians."""
    copied, mapped = [], []
    buffer = bytearray(512 << 10)
    for _ in range(rounds):
        begun = time.perf_counter()
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                int(np.frombuffer(buffer, np.uint64, count // 8).max(initial=0))
        copied.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        with (
            path.open("rb") as mapped_file,
            mmap.mmap(mapped_file.fileno(), 0, prot=mmap.PROT_READ) as whole,
        ):
            for start in range(0, len(whole), len(buffer)):
                count = min(len(buffer), len(whole) - start)
                words = np.frombuffer(whole, np.uint64, count // 8, start)
                int(words.max(initial=0))
                del words
        mapped.append(time.perf_counter() - begun)
    return statistics.median(copied), statistics.median(mapped)


def command_line(binary: Path, source: Path, output: Path) -> tuple[float, float]:
    """Wall and processor seconds of kv-compress without a server."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    command: list[str | Path] = [binary, "-input", source, "-output", output]
    command += ["-quiet", "-force"]  # without advice
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    taken = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return taken, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


class Rounds:
    """Seconds of everything, round by round."""

    def __init__(self) -> None:
        """Begins empty."""
        self.wall: dict[str, list[float]] = {}
        self.used: dict[str, list[float]] = {}

    def add(self, name: str, wall: float, used: float) -> None:
        """Takes one measurement: wall and processor seconds of all processes in it."""
        self.wall.setdefault(name, []).append(wall)
        self.used.setdefault(name, []).append(used)

    def median(self, name: str) -> float:
        """Wall seconds."""
        return statistics.median(self.wall[name])

    def processor(self, name: str) -> float:
        """Processor seconds."""
        return statistics.median(self.used[name])

    def ratio(self, ours: str, theirs: str) -> tuple[float, float]:
        """Speed of ours by theirs: the median of the rounds' ratios, by wall and by processor."""
        return tuple(
            statistics.median(b / a for a, b in zip(kept[ours], kept[theirs], strict=True))
            for kept in (self.wall, self.used)
        )  # type: ignore[return-value]


def measure(arguments: argparse.Namespace, folder: Path, rounds: Rounds) -> list[list[float]]:
    """Runs the rounds; also latencies of streams at once: their number, p50, p99, GB/s."""
    source, shared = folder / "cache", folder / "shared"
    socket = str(folder / "s")
    server = Peer(str(arguments.program), "serve", socket, str(folder))
    worker = Peer(str(arguments.program), "work", socket, str(source), str(shared))
    shared_command = arguments.binaries / "kv-compress"
    # No directory is shared with it: it says that it sees another one.
    client = kvcompress.Client(f"unix:{socket}", shared_directory=str(folder / "elsewhere"))
    for number in range(arguments.rounds + 1):
        for task in TASKS:
            before = server.processor_seconds()
            wall, used = worker.ask(task)
            if number > 0:
                rounds.add(task, wall, used + server.processor_seconds() - before)
        before, own, begun = server.processor_seconds(), time.process_time(), time.perf_counter()
        client.compress(source, shared / "python", overwrite=True, codec="int4")
        wall = time.perf_counter() - begun
        used = time.process_time() - own + server.processor_seconds() - before
        if number > 0:
            rounds.add("python", wall, used)
            rounds.add("cli", *command_line(shared_command, source, shared / "cli"))
    latencies = []
    for count in (1, 2, 8, 64):
        size = 16 * MIB
        seconds: list[float] = []
        begun = time.perf_counter()
        repeats = max(1, 64 // count)
        for _ in range(repeats):
            seconds += worker.ask(f"STREAMS {count} {size}")
        whole = time.perf_counter() - begun
        seconds.sort()
        p99 = seconds[min(len(seconds) - 1, int(len(seconds) * 0.99))]
        speed = repeats * count * size / whole / 1e9
        latencies.append([count, statistics.median(seconds), p99, speed])
    client.close()
    worker.stop()
    server.stop()
    return latencies


def speeds(size: int, rounds: Rounds) -> list[str]:
    """The table of what was timed."""
    names = {
        "socket": "raw Unix socket, 1 MiB there and 136 KiB back",
        "echo": "null echo: gRPC with the same messages, nothing done",
        "int4": "Compress, int4, messages that are there already",
        "client": "C++ client, from memory",
        "files streamed": "C++ client, file to file, streamed",
        "python": "Python client, file to file, streamed",
        "files named": "C++ client, file to file, named (CompressFile)",
        "embedded": "the same, service within the process",
        "cli": "`kv-compress` without a server, start included",
    }
    return [
        "| what | GB/s | seconds | processor seconds |",
        "| --- | --- | --- | --- |",
        *(
            f"| {text} | {size / rounds.median(name) / 1e9:.2f} | {rounds.median(name):.3f}"
            f" | {rounds.processor(name):.3f} |"
            for name, text in names.items()
        ),
    ]


def ratios(rounds: Rounds) -> list[str]:
    """The table of the ratios."""
    lines = [
        "| ratio of speeds | by wall time | by processor time | target |",
        "| --- | --- | --- | --- |",
    ]
    for text, ours, theirs, target in (
        ("Compress against the null echo", "int4", "echo", "0.85"),
        ("Compress against the raw socket", "int4", "socket", "0.5"),
        ("the null echo against the raw socket", "echo", "socket", ""),
        ("files named against streamed", "files named", "files streamed", "3.5"),
        ("Python client against the C++ one", "python", "files streamed", "0.6"),
        ("Compress against the embedded service", "int4", "embedded", ""),
    ):
        wall, used = rounds.ratio(ours, theirs)
        lines.append(f"| {text} | {wall:.2f} | {used:.2f} | {target} |")
    return [
        *lines,
        "| `kv-compress` against the Go program of the seed |"
        f" {GO_SECONDS / rounds.median('cli'):.0f}"
        f" | {GO_PROCESSOR_SECONDS / rounds.processor('cli'):.0f} | 50 by wall, 40 by processor |",
    ]


def memory_table(large_gb: int, found: dict[str, float]) -> list[str]:
    """The table of the server's memory."""
    growth = found["large"] / found["small"]
    return [
        "| most memory of kv-compressd | MiB | target |",
        "| --- | --- | --- |",
        f"| no call | {found['none']:.1f} | |",
        f"| a cache of 100 MB | {found['small']:.1f} | |",
        f"| a cache of {large_gb} GB, made while it is sent | {found['large']:.1f}"
        f" ({growth:.2f}x) | 1.1x |",
        f"| each of 32 streams at once beyond the first | {found['stream']:.1f} | 4 |",
    ]


def render(
    arguments: argparse.Namespace,
    size: int,
    rounds: Rounds,
    latencies: list[list[float]],
    found: dict[str, float],
) -> str:
    """The report in Markdown."""
    model, flags = processor()
    lines = [
        "<!-- Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0 -->",
        f"# Transport, {datetime.date.today()}",
        "",
        f"`tests/benchmark --transport --rounds {arguments.rounds} --large-gb"
        f" {arguments.large_gb}` on {model} ({flags}), {os.cpu_count()} processors; load average"
        f" {os.getloadavg()[0]:.1f}, our own processes included.",
        "",
        f"A cache of {size / 1e6:.0f} MB of F32 in a file system in memory, int4 with groups of 64,"
        " client and server on the same processors. Medians over interleaved rounds; processor"
        " seconds are those of all processes. On a machine with other work the wall times are"
        " those of a share of it, and the ratios by processor time say more.",
        "",
        *speeds(size, rounds),
        "",
        *ratios(rounds),
        "",
        f"The Go program packs nothing. Its {GO_SECONDS} s and {GO_PROCESSOR_SECONDS} processor"
        " seconds are cited: they were measured on another day, on a quiet machine of this kind.",
        "",
        "| streams at once, of 16 MiB each | p50, ms | p99, ms | GB/s together |",
        "| --- | --- | --- | --- |",
        *(
            f"| {int(count)} | {p50 * 1e3:.0f} | {p99 * 1e3:.0f} | {speed:.2f} |"
            for count, p50, p99, speed in latencies
        ),
        "",
        *memory_table(arguments.large_gb, found),
        "",
        f"Going once over the file: copied in pieces of 512 KiB {size / found['copied'] / 1e9:.2f}"
        f" GB/s, mapped {size / found['mapped'] / 1e9:.2f} GB/s.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measures, prints, saves."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--binaries", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--large-gb", type=int, default=8)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rounds = Rounds()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        (folder / "shared").mkdir()
        (folder / "elsewhere").mkdir()
        size = write_cache(folder / "cache", 22)
        latencies = measure(arguments, folder, rounds)
        binary = arguments.binaries / "kv-compressd"
        found = memory(binary, arguments.large_gb * 10**9)
        found["stream"] = stream_memory(arguments.program, binary, folder / "cache", folder, 32)
        found["copied"], found["mapped"] = read_and_map(folder / "cache", arguments.rounds)
    text = render(arguments, size, rounds, latencies, found)
    sys.stdout.write(text)
    if arguments.save:
        save("transport", text, arguments.output)


if __name__ == "__main__":
    main()
