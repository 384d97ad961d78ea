# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What several clients' streams reach together, beside a null echo; see tests/benchmark."""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from busiest import thread_times
from caches import make_tensor, write_cache
from rounds import in_turns
from transport import Peer

TASKS = ("echo", "int4", "ecsq")


@dataclass(frozen=True)
class Taken:
    """What some clients did at once."""

    speed: float  # GB/s together
    both: float  # processor seconds for a GB, of client and server
    server: float  # the same of the server
    busiest: float  # share of the server's time that its busiest thread has


def measure(server: Peer, clients: list[Peer], task: str, size: int) -> Taken:
    """Lets each of the clients send a cache, all at the same time."""
    before = [peer.processor_seconds() for peer in (server, *clients)]
    threads = thread_times(server.process.pid)
    begun = time.perf_counter()
    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(lambda client: client.ask(task), clients))
    wall = time.perf_counter() - begun
    used = [
        peer.processor_seconds() - earlier
        for peer, earlier in zip((server, *clients), before, strict=True)
    ]
    taken = [
        now - threads.get(thread, 0) for thread, now in thread_times(server.process.pid).items()
    ]
    sent = len(clients) * size / 1e9
    return Taken(sent / wall, sum(used) / sent, used[0] / sent, max(taken) / sum(taken))


def table(program: Path, counts: list[int], rounds: int) -> Iterator[str]:
    """Rows: medians of rounds, in which all take turns."""
    yield "| streams | clients | GB/s together | processor s/GB, both ends | server | busiest |\n"
    yield "| --- | --- | --- | --- | --- | --- |\n"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        source = Path(folder) / "cache"
        size = write_cache(source, make_tensor(tokens=4096), count=11)
        socket = f"{folder}/s"
        server = Peer(str(program), "serve", socket, folder)
        clients = [
            Peer(str(program), "work", socket, str(source), f"{folder}/shared")
            for _ in range(max(counts))
        ]
        found = in_turns(
            rounds,
            {
                (task, count): partial(measure, server, clients[:count], task, size)
                for task in TASKS
                for count in counts
            },
        )
        for peer in (*clients, server):
            peer.stop()
    for (task, count), each in found.items():
        speed, both, of_server, busiest = (
            statistics.median(getattr(taken, name) for taken in each)
            for name in ("speed", "both", "server", "busiest")
        )
        yield (
            f"| {task} | {count} | {speed:.2f} | {both:.2f} | {of_server:.2f} | {busiest:.0%} |\n"
        )


def main() -> None:
    """Prints the table in Markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    for row in table(arguments.program, arguments.counts, arguments.rounds):
        print(row, end="", flush=True)


if __name__ == "__main__":
    main()
