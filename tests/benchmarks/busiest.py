# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What one thread of a command does alone: it bounds what all the others can bring."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import profiles

CODECS = ("int4", "int8", "ecsq:contract", "lossless", "klt:contract", "klt:max", "auto")
PROFILED = ("klt:high", "klt:max")
THREADS = 16
INTERVAL = 0.002  # seconds between two looks
_ROUNDS = 3


def thread_times(pid: int) -> dict[str, int]:
    """Nanoseconds that each thread of a process has worked, but for those that have ended."""
    nanoseconds: dict[str, int] = {}
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError, IndexError):
            nanoseconds[thread.name] = int((thread / "schedstat").read_text().split()[0])
    return nanoseconds


def remove_output(command: list[str | Path]) -> None:
    """A command writes a new file then. To replace one, a thread also frees its pages."""
    if "-output" in command:
        Path(command[command.index("-output") + 1]).unlink(missing_ok=True)


def shares(command: list[str | Path]) -> list[float]:
    """Of the processor time of a command, that of each of its threads, the busiest first.

    As of the last look at it: what a thread does within two milliseconds of its end is not seen.
    """
    remove_output(command)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    nanoseconds: dict[str, int] = {}
    while process.poll() is None:
        nanoseconds.update(thread_times(process.pid))
        time.sleep(INTERVAL)
    assert process.returncode == 0, command
    whole = sum(nanoseconds.values())
    return sorted((each / whole for each in nanoseconds.values()), reverse=True)


def least_share(command: list[str | Path], output: Path) -> float:
    """The least share of the busiest thread in some rounds."""
    command = [*command, "-output", output, "-threads", str(THREADS), "-quiet"]
    return min(shares(command)[0] for _ in range(_ROUNDS))


def table(binary: Path, cache: Path, profiled_tokens: int) -> Iterator[str]:
    """The least share of the busiest thread in some rounds, both ways, from file to file.

    With a profile, of a cache with so many tokens of 7,680 bytes.
    """
    yield f"| codec | busiest of {THREADS} threads: compress | restore |\n| --- | --- | --- |\n"
    artefact, restored = cache.with_suffix(".kvc"), cache.with_suffix(".restored")
    profile, profiled = cache.with_suffix(".profile"), cache.with_suffix(".profiled")
    profile.write_bytes(profiles.made_profile(binary.parent))
    profiled.write_bytes(profiles.made_cache(profiled_tokens, seed=100))
    tasks: list[tuple[str, Path, list[str | Path]]] = [(codec, cache, []) for codec in CODECS]
    tasks += [(codec, profiled, ["-profile", profile]) for codec in PROFILED]
    for codec, source, flags in tasks:
        there = least_share([binary, "-input", source, "-codec", codec, *flags], artefact)
        back = least_share([binary, "-decompress", "-input", artefact, *flags], restored)
        name = f"`{codec}`, profile" if flags else f"`{codec}`"
        yield f"| {name} | {there:.0%} | {back:.0%} |\n"
    for path in (artefact, restored, profile, profiled):
        path.unlink()
