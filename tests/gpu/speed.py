# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Measures kvcompress.gpu on caches of the shape of Llama 3 8B, and prints a table.

    python speed.py cuda|cpu [--seconds N]

On the CPU, in Triton's interpreter, the shape is tiny and times say nothing: it is a dry run.
"""

import argparse
import datetime
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext

import torch  # type: ignore[import-not-found,unused-ignore]
import triton  # type: ignore[import-not-found,unused-ignore]
from interpreting import fast_interpreter
from synthetic import LLAMA, TINY, Shape, artefact, profiles

from kvcompress.gpu import Decoder, Encoder

LENGTHS = (2048, 8192, 32768)
DRY_LENGTHS = (20,)
BLOCKS = (256, 64)
DRY_BLOCKS = (16,)
PLAIN = ("int8", "int4", "ecsq:high")
"""Codecs without a profile."""
_RUNS = 5
_LONG = 1.0  # seconds
_COPIED = 1 << 30  # bytes of the copy that others are held against

Cache = Mapping[str, torch.Tensor]


def synchronize(device: str) -> None:
    """Waits for the device."""
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_of(run: Callable[[], object], device: str) -> float:
    """The median time of a call, all of it, after one that is not counted; of one in a dry run.

    Of fewer calls where they take long.
    """
    times: list[float] = []
    while len(times) < (1 if device == "cpu" else _RUNS + 1) and sum(times) < _LONG:
        synchronize(device)
        began = time.perf_counter()
        run()
        synchronize(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:] or times)


def pinned(data: bytes, device: str) -> torch.Tensor:
    """An artefact in memory of the host that the device copies from."""
    tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return tensor.pin_memory() if device == "cuda" else tensor


def environment(device: str) -> str:
    """Card, driver, versions and date."""
    if device == "cuda":
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            driver = f"of {torch.version.hip or 'unknown'}"
        where = f"{torch.cuda.get_device_name()}, driver {driver.strip().splitlines()[0]}"
    else:
        where = f"DRY RUN without a device, in Triton's interpreter on {platform.machine()}"
    day = datetime.datetime.now(datetime.UTC).date()
    return f"{where}; torch {torch.__version__}, triton {triton.__version__}; {day}"


def copied(device: str) -> float | None:
    """GB/s of uncompressed bytes from pinned memory to the device; None without one."""
    if device == "cpu":
        return None
    source = torch.empty(_COPIED, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(_COPIED, dtype=torch.uint8, device=device)
    return _COPIED / 1e9 / seconds_of(lambda: target.copy_(source, non_blocking=True), device)


class Table:
    """Prints rows as they are measured.

    Args:
        device: Where.
        copy: GB/s of copying uncompressed bytes to it; None without a device.
    """

    def __init__(self, device: str, copy: float | None) -> None:
        """Prints the head."""
        self.device, self.copy = device, copy
        if copy is not None:
            print(f"\nuncompressed from pinned memory: {copy:.1f} GB/s")
        print("| codec | tokens | cache MB | artefact MB | decode ms | GB/s | next to copying "
              "| encode ms | GB/s |")  # fmt: skip
        print("|" + " --- |" * 9, flush=True)

    def row(
        self, name: str, size: int, tokens: int, data: bytes, runs: tuple[float, float]
    ) -> None:
        """Prints a row: seconds of decoding and of encoding."""
        decode, encode = runs
        rate = size / 1e9 / decode
        ratio = "-" if self.copy is None else f"{rate / self.copy:.2f}x"
        print(
            f"| {name} | {tokens:,} | {size / 1e6:,.1f} | {len(data) / 1e6:,.2f} | "
            f"{1e3 * decode:,.2f} | {rate:,.1f} | {ratio} | "
            f"{1e3 * encode:,.2f} | {size / 1e9 / encode:,.1f} |",
            flush=True,
        )


def measure(shape: Shape, lengths: tuple[int, ...], device: str, until: float) -> None:
    """Measures all codecs for all lengths; those for which there is no time are named."""
    straight, turning = profiles(shape)
    plain, turned = Decoder(straight, device), Decoder(turning, device)
    encoders = {
        each: Encoder("klt:max", device, profile=turning, block_tokens=each)
        for each in (DRY_BLOCKS if device == "cpu" else BLOCKS)
    }
    table = Table(device, copied(device))
    for tokens in lengths:
        for block_tokens, encoder in encoders.items():
            name = f"klt-profile, blocks of {block_tokens}"
            if time.monotonic() > until:
                print(f"skipped, no time is left: {name}, {tokens:,} tokens")
                continue
            data = artefact(shape, tokens, block_tokens, plain, turned)
            into = dict(turned.decode(data).tensors)
            one_row(table, name, shape, tokens, (turned, encoder), data, into)
        for codec in PLAIN:
            if time.monotonic() > until:
                print(f"skipped, no time is left: {codec}, {tokens:,} tokens")
                continue
            plain_encoder = Encoder(codec, device)
            data = bytes(plain_encoder.encode(into).data.numpy())
            coders = (Decoder(device=device), plain_encoder)
            one_row(table, codec, shape, tokens, coders, data, into)


def one_row(
    table: Table,
    name: str,
    shape: Shape,
    tokens: int,
    coders: tuple[Decoder, Encoder],
    data: bytes,
    into: Cache,
) -> None:
    """Measures decoding into tensors that are there, and encoding them."""
    decoder, encoder = coders
    held = pinned(data, table.device)
    runs = (
        seconds_of(lambda: decoder.decode(held, into), table.device),
        seconds_of(lambda: encoder.encode(into), table.device),
    )
    table.row(name, shape.size(tokens), tokens, data, runs)


def main() -> None:
    """Prints the environment and the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("device", choices=("cuda", "cpu"))
    parser.add_argument("--seconds", type=float, default=150)
    options = parser.parse_args()
    print(environment(options.device))
    dry = options.device == "cpu"
    with fast_interpreter() if dry else nullcontext():
        shape, lengths = (TINY, DRY_LENGTHS) if dry else (LLAMA, LENGTHS)
        measure(shape, lengths, options.device, time.monotonic() + options.seconds)


if __name__ == "__main__":
    main()
