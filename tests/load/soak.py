# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Mixed traffic for a time, and what became of it; see tests/soak --help."""

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from calls import metric
from machine import RESULTS, machine, save
from process_memory import peak, resident
from server_process import ServerProcess
from traffic import Traffic, WrongResultError

import kvcompress

MIB = 1 << 20
BUDGET = 1 << 30
# Samples of memory begin after this part of the time, when the allocator has settled.
SETTLED = 0.25


@dataclass
class Tally:
    """What came of the calls. Shared by all clients."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    refused: Counter[str] = field(default_factory=Counter)
    too_large: int = 0
    failures: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def drive(target: str, seed: int, largest: int, end: float, tally: Tally) -> None:
    """One client, until the end."""
    with kvcompress.Client(target, timeout=300) as client:
        traffic = Traffic(client, seed, largest)
        while time.monotonic() < end and not tally.wrong:
            call = traffic.next()
            name, begin = call.__name__, time.monotonic()
            try:
                call()
            except kvcompress.ResourceExhaustedError as error:
                with tally.lock:
                    tally.refused[error.reason or "RESOURCE_EXHAUSTED"] += 1
                time.sleep(0.2)
                continue
            except WrongResultError as error:
                with tally.lock:
                    tally.wrong.append(f"client {seed}: {error}")
                return
            except Exception as error:  # whatever it is, it goes into the report
                with tally.lock:
                    # A tensor that a codec holds whole, and that no wait would make fit.
                    if getattr(error, "reason", "") == "EXCEEDS_BUDGET":
                        tally.too_large += 1
                    else:
                        tally.failures.append(f"{name}: {type(error).__name__}: {error}"[:300])
                continue
            with tally.lock:
                tally.seconds[name].append(time.monotonic() - begin)


def slope(samples: list[tuple[float, int]]) -> tuple[float, float]:
    """MiB an hour by least squares, and its standard error."""
    hours = np.array([at for at, _ in samples]) / 3600
    sizes = np.array([size for _, size in samples]) / MIB
    if len(samples) < 4:
        return 0.0, float("inf")
    (rate, _), covariance = np.polyfit(hours, sizes, 1, cov=True)
    return float(rate), float(np.sqrt(covariance[0, 0]))


def server_errors(server: ServerProcess) -> dict[str, int]:
    """Calls that ended with an error, by method and code, as the server counted them."""
    found = {}
    for line in server.get("/metrics")[2].splitlines():
        if line.startswith("kvcompress_errors_total{") and not line.endswith(" 0"):
            labels, value = line.removeprefix("kvcompress_errors_total").rsplit(" ", 1)
            found[labels.strip("{}").replace('"', "")] = int(float(value))
    return found


def report(
    arguments: argparse.Namespace,
    tally: Tally,
    samples: list[tuple[float, int]],
    server: ServerProcess,
    took: float,
) -> str:
    """The report, in Markdown."""
    calls = sum(map(len, tally.seconds.values()))
    rate, error = slope([sample for sample in samples if sample[0] > SETTLED * took])
    command = (
        f"tests/soak --seconds {arguments.seconds} --clients {arguments.clients} "
        f"--largest {arguments.largest} --seed {arguments.seed}"
    )
    moved = sum(
        metric(server, f'kvcompress_{way}_bytes_total{{method="{method}"}}')
        for way in ("input", "output")
        for method in ("Compress", "Decompress", "Measure")
    )
    lines = [
        f"# Soak of {took / 60:.0f} minutes, {time.strftime('%Y-%m-%d', time.gmtime())}",
        "",
        f"`{command}` on {machine()}.",
        "",
        "| what | figure |",
        "| --- | --- |",
        f"| calls made and checked | {calls:,} |",
        f"| bytes moved | {moved / 1e9:.1f} GB |",
        f"| silent corruptions | {len(tally.wrong)} |",
        f"| failures for no reason of the test's | {len(tally.failures)} |",
        f"| refused for want of memory, and tried again | {sum(tally.refused.values()):,} |",
        f"| refused, as one tensor alone is above the budget | {tally.too_large:,} |",
        f"| resident memory at the start, at most, at the end | {samples[0][1] / MIB:.0f}, "
        f"{peak(server.pid) / MIB:.0f}, {samples[-1][1] / MIB:.0f} MiB; the budget is "
        f"{BUDGET // MIB} MiB |",
        "| slope of resident memory after the first quarter | "
        f"{rate:+.0f} ± {error:.0f} MiB an hour |",
        f"| memory reserved in the end | {metric(server, 'kvcompress_inflight_bytes'):.0f} bytes |",
        f"| open files in the end | {metric(server, 'process_open_fds'):.0f} |",
        "",
        "| calls | number | p50, s | p99, s | longest, s |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, seconds in sorted(tally.seconds.items()):
        middle, late = np.percentile(seconds, [50, 99])
        lines.append(
            f"| {name} | {len(seconds):,} | {middle:.3f} | {late:.2f} | {max(seconds):.2f} |"
        )
    lines += ["", "Errors as the server counted them, all of them provoked or counted above:", ""]
    lines += [f"- {labels}: {count:,}" for labels, count in server_errors(server).items()]
    for title, entries in (("Wrong", tally.wrong), ("Failed", tally.failures[:20])):
        if entries:
            lines += ["", f"{title}:", "", *(f"- {entry}" for entry in entries)]
    return "\n".join(lines)


def main() -> int:
    """Runs it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--largest", type=int, default=64 * MIB)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    tally, samples = Tally(), []
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(["--memory-budget-bytes", str(BUDGET)], {}, Path(folder))
        try:
            server.wait_until_serving()
            begin = time.monotonic()
            end = begin + arguments.seconds
            clients = [
                threading.Thread(
                    target=drive,
                    args=(
                        server.addresses[0],
                        1000 * arguments.seed + number,
                        arguments.largest,
                        end,
                        tally,
                    ),
                )
                for number in range(arguments.clients)
            ]
            for client in clients:
                client.start()
            while any(client.is_alive() for client in clients):
                samples.append((time.monotonic() - begin, resident(server.pid)))
                time.sleep(1)
            text = report(arguments, tally, samples, server, time.monotonic() - begin)
        finally:
            server.kill()
    print(text)
    if arguments.save:
        print(f"\nwritten to {save('soak', text, arguments.output)}", file=sys.stderr)
    return 1 if tally.wrong or tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
