# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Measures how soon an artefact is restored that comes over a link; see tests/benchmark.

A sender sends a file to whoever connects. Its bytes go through a proxy that carries so many bits a
second, and `kv-compress -decompress -` restores them as they come. Next to what that takes stands
what deploy/link.py works out from the costs of restoring the same file without a link, and from
the cores that the proxy leaves. A second table has how soon the first layers are there, which a
server restores in the order of the file or in that of the layers.
"""

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
from caches import make_tensor, write_cache
from link import Cost, Prefix, seconds
from threads import daemon, processor_seconds, timed

from kvcompress.v1 import compression_service_pb2 as pb
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

PROXY = Path(__file__).resolve().parents[1] / "engines" / "link.py"
CODECS = ("lossless", "int4", "ecsq:contract", "klt:contract")
GIGABITS = (0.5, 1.0, 2.0)
_SENT_AT_ONCE = 1 << 20


@contextmanager
def sender(path: Path) -> Iterator[int]:
    """Sends the file to each connection; returns the port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                # Whoever only looks whether there is a proxy takes nothing.
                with suppress(ConnectionError), connection, path.open("rb") as file:
                    connection.sendfile(file)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@contextmanager
def link(target: int, gigabits: float) -> Iterator[tuple[int, int]]:
    """A proxy before a port that carries so much: its port and its process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, str(PROXY), str(port), str(target), str(gigabits * 1e9)]
    process = subprocess.Popen(command)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def receive(port: int, command: list[str | Path] | None) -> float:
    """Seconds to restore what comes from a port; or, without a command, to read it."""
    begun = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        if command is None:
            buffer = bytearray(_SENT_AT_ONCE)
            while connection.recv_into(buffer):
                pass
        else:
            done = subprocess.run(command, stdin=connection.fileno(), capture_output=True)
            if done.returncode != 0:
                raise SystemExit(done.stderr.decode())
    return time.perf_counter() - begun


def local_cost(binary: Path, cache: Path, artefact: Path, codec: str, rounds: int) -> Cost:
    """Of restoring from a file; what compressing costs does not matter here."""
    files: list[str | Path] = ["-input", cache, "-output", artefact, "-codec", codec]
    timed([binary, *files, "-force", "-quiet"])
    restored = cache.with_suffix(".restored")
    restore: list[str | Path] = [binary, "-decompress", artefact, "-output", restored]
    taken = statistics.median(
        timed([*restore, "-force", "-quiet"]).processor for _ in range(rounds)
    )
    size = cache.stat().st_size
    return Cost(size / artefact.stat().st_size, 0, taken / size * 1e9)


def arrivals(address: str, port: int, order: pb.TensorOrder.ValueType) -> dict[int, float]:
    """Seconds until all of a layer is restored, of each, of an artefact that comes from a port."""
    begun = time.perf_counter()
    found: dict[int, float] = {}
    restored = bytearray()
    ends: list[tuple[int, int]] | None = None
    with (
        socket.create_connection(("127.0.0.1", port)) as connection,
        grpc.insecure_channel(address) as channel,
    ):

        def requests() -> Iterator[pb.DecompressRequest]:
            yield pb.DecompressRequest(options=pb.DecompressOptions(order=order))
            while data := connection.recv(_SENT_AT_ONCE):
                yield pb.DecompressRequest(artefact=data)

        for response in CompressionServiceStub(channel).Decompress(requests()):
            restored += response.safetensors.data
            if ends is None and len(restored) > 8:
                start = 8 + int.from_bytes(restored[:8], "little")
                if len(restored) >= start:
                    ends = layer_ends(bytes(restored[8:start]), start)
            while ends and len(restored) >= ends[0][1]:
                # Its keys come before its values, which are there last.
                found[ends.pop(0)[0]] = time.perf_counter() - begun
    return found


def layer_ends(header: bytes, start: int) -> list[tuple[int, int]]:
    """The layer of each tensor and where that ends in the file, in the order of the file."""
    entries = [(name, entry["data_offsets"][1]) for name, entry in json.loads(header).items()]
    return sorted(
        ((int(name.split("_")[1]), start + end) for name, end in entries),
        key=lambda found: found[1],
    )


def first_layers(
    binary: Path, cache: Path, layers: int, rounds: int, gigabits: float
) -> Iterator[str]:
    """Rows: when layers are there, of a cache whose names are sorted, as safetensors has them."""
    quarter = max(1, layers // 4)
    yield f"| codec | order | first layer | first {quarter} layers | all {layers} |\n"
    yield "| --- | --- | --- | --- | --- |\n"
    with (
        tempfile.TemporaryDirectory() as folder,
        daemon(binary.with_name("kv-compressd"), Path(folder)) as (address, _),
    ):
        for codec in CODECS:
            artefact = cache.with_suffix(".kvc")
            files: list[str | Path] = ["-input", cache, "-output", artefact, "-codec", codec]
            timed([binary, *files, "-force", "-quiet"])
            for name, order in (("file", pb.TENSOR_ORDER_FILE), ("layers", pb.TENSOR_ORDER_LAYERS)):
                with sender(artefact) as port, link(port, gigabits) as (near, _):
                    found = [arrivals(address, near, order) for _ in range(rounds)]
                when = [
                    statistics.median(max(each[layer] for layer in range(count)) for each in found)
                    for count in (1, quarter, layers)
                ]
                yield f"| {codec} | {name} | " + " | ".join(f"{at:.2f} s" for at in when) + " |\n"


def main() -> None:
    """Prints tables in Markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gigabits", type=float, nargs="+", default=GIGABITS)
    arguments = parser.parse_args()
    binary = arguments.binaries / "kv-compress"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        cache = Path(folder) / "cache.safetensors"
        size = write_cache(cache, make_tensor(arguments.tokens), arguments.layers)
        prefix = Prefix(size, 2 * arguments.layers)
        print(f"{size / 1e6:.0f} MB in {prefix.tensors} tensors, {os.cpu_count()} cores\n")
        print("| codec | ratio | CPU s/GB | Gb/s | worked out | measured | measured / worked out |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for codec in ("raw", *CODECS):
            artefact = cache if codec == "raw" else cache.with_suffix(".kvc")
            cost = Cost(1, 0, 0)
            if codec != "raw":
                cost = local_cost(binary, cache, artefact, codec, arguments.rounds)
            restored = cache.with_suffix(".restored")
            command: list[str | Path] = [binary, "-decompress", "-", "-output", restored]
            command += ["-force", "-quiet"]
            for gigabits in arguments.gigabits:
                with sender(artefact) as port, link(port, gigabits) as (near, proxy):
                    found, used = [], 0.0
                    for _ in range(arguments.rounds):
                        before = processor_seconds(proxy) + _own_seconds()
                        found.append(receive(near, None if codec == "raw" else command))
                        used += processor_seconds(proxy) + _own_seconds() - before
                measured = statistics.median(found)
                cores = (os.cpu_count() or 1) - used / sum(found)
                likely = seconds(cost, prefix, gigabits, cores)
                print(
                    f"| {codec} | {cost.ratio:.2f}x | {cost.restore:.2f} | {gigabits:g} | "
                    f"{likely:.2f} s | {measured:.2f} s | {measured / likely:.2f} |",
                    flush=True,
                )
        print(f"\nThe same cache, its names sorted, over {arguments.gigabits[0]:g} Gb/s\n")
        write_cache(cache, make_tensor(arguments.tokens), arguments.layers, in_order=sorted)
        for row in first_layers(
            binary, cache, arguments.layers, arguments.rounds, arguments.gigabits[0]
        ):
            print(row, end="", flush=True)


def _own_seconds() -> float:
    """Processor time of this process, which sends."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
