# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What a server gets done when it is asked for too much; see tests/overload --help.

Clients are processes, so that they do not wait for each other's interpreter.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
from calls import MIB, details
from machine import RESULTS, machine, save
from process_memory import peak, resident
from server_process import ServerProcess

from kvcompress.v1 import compression_service_pb2 as pb
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

SAMPLE = Path(__file__).parents[1] / "data" / "smollm2_kjv_96_bf16.safetensors"
CODEC = "ecsq"
# Streams that fit, and what one reserves: 4 MiB, its header and twice its largest tensor.
FIT = 8
STREAM = 5 * MIB
PROCESSES = 4
# A cache arrives as an engine or a network sends it: so much, and then a pause.
CHUNK = MIB // 8
PAUSE = 0.02


@dataclass
class Outcome:
    """Of one measurement."""

    served: int
    refusals: list[float]  # seconds until a refused call had its answer
    bytes_a_second: float


def client(target: str, threads: int, seconds: float) -> None:
    """One process of clients: prints what it saw."""
    data = SAMPLE.read_bytes()

    def requests() -> Iterator[pb.CompressRequest]:
        yield pb.CompressRequest(options=pb.CompressOptions(codec=CODEC))
        for at in range(0, len(data), CHUNK):
            yield pb.CompressRequest(safetensors=data[at : at + CHUNK])
            time.sleep(PAUSE)

    end = time.monotonic() + seconds
    lock = threading.Lock()
    served = 0
    refusals: list[float] = []

    def loop(number: int) -> None:
        del number  # one is as good as another
        nonlocal served
        with grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub = CompressionServiceStub(channel)
            while (begin := time.monotonic()) < end:
                try:
                    *_, last = stub.Compress(requests(), timeout=100)
                except grpc.RpcError as error:
                    if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                        raise
                    waited = time.monotonic() - begin
                    with lock:
                        refusals.append(waited)
                    time.sleep(max(0, min(details(error)[1] or 0, end - time.monotonic())))
                    continue
                if last.HasField("trailer") and time.monotonic() < end:
                    with lock:
                        served += 1

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(loop, range(threads)))
    print(json.dumps({"served": served, "refusals": refusals}))


def measure(server: ServerProcess, clients: int, seconds: float) -> Outcome:
    """Makes this many clients call for a time."""
    command = [sys.executable, __file__, "--client", server.addresses[0]]
    share = [clients // PROCESSES + (number < clients % PROCESSES) for number in range(PROCESSES)]
    processes = [
        subprocess.Popen([*command, str(threads), str(seconds)], stdout=subprocess.PIPE, text=True)
        for threads in share
    ]
    seen = []
    for process in processes:
        output, _ = process.communicate(timeout=seconds + 200)
        if process.returncode != 0:
            raise SystemExit("a client failed")
        seen.append(json.loads(output))
    served = sum(each["served"] for each in seen)
    return Outcome(
        served,
        [seconds for each in seen for seconds in each["refusals"]],
        served * SAMPLE.stat().st_size / seconds,
    )


def report(
    arguments: argparse.Namespace,
    rounds: list[tuple[Outcome, Outcome]],
    budget: int,
    before: int,
    most: int,
) -> str:
    """The report, in Markdown."""
    fitting, over = zip(*rounds, strict=True)
    waits = np.array([seconds for each in over for seconds in each.refusals] or [np.nan])
    ratios = [much.bytes_a_second / fit.bytes_a_second for fit, much in rounds]
    command = f"tests/overload --seconds {arguments.seconds} --rounds {arguments.rounds}"
    lines = [
        f"# {arguments.times} times the load that fits, {time.strftime('%Y-%m-%d', time.gmtime())}",
        "",
        f"`{command} --times {arguments.times}` on {machine()}.",
        "",
        f"A budget of {budget // MIB} MiB, where {FIT} streams of {CODEC} fit; {FIT} and "
        f"{FIT * arguments.times} clients in turn, each sending one cache after the other, "
        f"{CHUNK >> 10} KiB every {PAUSE * 1000:.0f} ms, or coming back when it is told to. "
        "Clients share the processors with the server.",
        "",
        "| what | load that fits | overload |",
        "| --- | --- | --- |",
    ]
    rows: dict[str, list[float]] = {
        "caches compressed": [sum(o.served for o in side) for side in (fitting, over)],
        "calls refused": [sum(len(o.refusals) for o in side) for side in (fitting, over)],
        "MB/s of caches, median": [
            round(statistics.median(o.bytes_a_second for o in side) / 1e6, 1)
            for side in (fitting, over)
        ],
    }
    lines += [f"| {name} | {fit:,} | {much:,} |" for name, (fit, much) in rows.items()]
    lines += [
        "",
        "| what | figure | promised |",
        "| --- | --- | --- |",
        f"| throughput under overload, of that under the load that fits: median of "
        f"{len(ratios)} rounds | {statistics.median(ratios):.0%} "
        f"({min(ratios):.0%} to {max(ratios):.0%}) | at least 90% |",
        "| slowest answer to a refused call | "
        f"{waits.max():.2f} s; half within {np.median(waits):.3f} s, 99% within "
        f"{np.percentile(waits, 99):.2f} s | 1 s |",
        f"| memory above that at the start, at most | {(most - before) / MIB:.0f} MiB | "
        f"the budget of {budget // MIB} MiB, as much again for the allocator, and the buffers of "
        "connections |",
    ]
    return "\n".join(lines)


def main() -> int:
    """Runs it."""
    if sys.argv[1:2] == ["--client"]:
        client(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    budget = FIT * STREAM
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--memory-budget-bytes", str(budget), "--log-level", "info"]
        server = ServerProcess(flags, {}, Path(folder))
        try:
            server.wait_until_serving()
            before = resident(server.pid)
            measure(server, FIT, 2)
            rounds = [
                (
                    measure(server, FIT, arguments.seconds),
                    measure(server, FIT * arguments.times, arguments.seconds),
                )
                for _ in range(arguments.rounds)
            ]
            most = peak(server.pid)
        finally:
            server.kill()
    if not all(fitting.served for fitting, _ in rounds):
        parser.exit(2, f"nothing was served in {arguments.seconds} s: give it more --seconds\n")
    text = report(arguments, rounds, budget, before, most)
    print(text)
    if arguments.save:
        print(f"\nwritten to {save('overload', text, arguments.output)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
