# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The second half of quickstart: codecs compared over the real server, each verified.

What the server reports is not taken on trust: the distortion is computed again from
the files, in NumPy, and the artefact is decoded by the reader in kvcompress.payload,
which shares no code with the server.
"""

import json
import math
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import grpc
import numpy as np
import numpy.typing as npt

import results
from kvcompress import payload
from results import REPOSITORY

SAMPLE = REPOSITORY / "tests" / "data" / "smollm2_kjv_96_bf16.safetensors"
BIN = REPOSITORY / "bin"
CODECS = ("lossless", "int4", "ecsq:contract", "auto")
SHOWN = "auto"
START_SECONDS = 30.0
STOP_SECONDS = 10.0
STEP_SECONDS = 120.0
HEADING = """\
                                     tensors  damage,   compress  restore
  codec           ratio       SNR  in bounds  of int4       MB/s     MB/s"""
NEXT = """\
Verified, for each codec: every checksum holds; NumPy computes the same distortion from the files;
an independent reader decodes the artefact to the same values. The server is stopped.

To start it for good, and to use it:
  bin/kv-compressd --listen 127.0.0.1:50051 --metrics-listen 127.0.0.1:9464
  bin/kv-compress -server 127.0.0.1:50051 -codec auto -input FILE -output FILE
To compare the codecs on a cache of your own:
  bin/kv-compress -compare FILE"""


class NotVerifiedError(Exception):
    """What did not hold."""


def check(holds: bool, what: str) -> None:
    """Raises NotVerifiedError with `what` unless it holds."""
    if not holds:
        raise NotVerifiedError(what)


@contextmanager
def running_server(log: Path) -> Iterator[str]:
    """Runs kv-compressd on a free port of loopback and returns its address once it serves."""
    daemon, anywhere = BIN / "kv-compressd", "127.0.0.1:0"
    command = [str(daemon), "--listen", anywhere, "--metrics-listen", anywhere]
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield wait_until_serving(server, log)
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def wait_until_serving(server: "subprocess.Popen[bytes]", log: Path) -> str:
    """Waits for grpc.health.v1 to report SERVING; returns the address."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        text = log.read_text(errors="replace")
        check(server.poll() is None, f"the server ended at once, saying:\n{text}")
        listening = re.search(r"listening on (127\.0\.0\.1:[0-9]+)", text)
        if listening is not None and is_serving(listening[1]):
            return listening[1]
        time.sleep(0.05)
    raise NotVerifiedError(f"the server was not SERVING after {START_SECONDS:.0f} s")


def is_serving(address: str) -> bool:
    """Asks grpc.health.v1. An empty request asks for all; bytes 8, 1 say SERVING."""
    with grpc.insecure_channel(address) as channel:
        health: grpc.UnaryUnaryMultiCallable[bytes, bytes]
        health = channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            return health(b"", timeout=5) == b"\x08\x01"
        except grpc.RpcError:
            return False


def kv_compress(server: str, *arguments: object) -> dict[str, Any]:
    """Runs the command line client and returns its JSON."""
    command = [str(BIN / "kv-compress"), "-server", server, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STEP_SECONDS)
    failure = f"`{shlex.join(command)}` ended with status {done.returncode}:\n{done.stderr}"
    check(done.returncode == 0, failure.strip())
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def bits_of(path: Path) -> dict[str, npt.NDArray[np.uint16]]:
    """Reads a safetensors file of BF16 tensors: the bits of their elements by name."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        check(entry["dtype"] == "BF16", f"{name} in {path.name} is not BF16")
        first, last = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[end + first : end + last], "<u2").reshape(entry["shape"])
    return tensors


def widen(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float64]:
    """The values of BF16 elements."""
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def distortion(source: Path, restored: Path) -> dict[str, float | None]:
    """Computes what the client reports, from the values in the two files."""
    before, after = bits_of(source), bits_of(restored)
    check(list(before) == list(after), "the restored file has other tensors")
    for name in before:
        check(before[name].shape == after[name].shape, f"{name} has another shape")
    x = np.concatenate([widen(bits).ravel() for bits in before.values()])
    y = np.concatenate([widen(bits).ravel() for bits in after.values()])
    error = y - x
    noise = float(np.sum(error**2))
    return {
        "rmse": math.sqrt(np.mean(error**2)),
        "snr_db": 10 * math.log10(np.sum(x**2) / noise) if noise else None,
        "cosine_similarity": float(x @ y / math.sqrt((x @ x) * (y @ y))),
        "max_error": float(np.abs(error).max()),
    }


def verify(metrics: dict[str, Any], artefact: Path, restored: Path) -> None:
    """Raises NotVerifiedError unless the files bear out what the client reported."""
    for key, value in distortion(SAMPLE, restored).items():
        told = metrics[key]
        same = told is value if value is None or told is None else math.isclose(told, value)
        check(same, f"{key} is {value} by NumPy, and was reported as {told}")
    size = artefact.stat().st_size
    check(metrics["compressed_size_bytes"] == size, "the artefact has another size than reported")
    values = 2 * sum(bits.size for bits in bits_of(SAMPLE).values())
    check(metrics["original_size_bytes"] == values, "the cache has another size than reported")
    decoded, expected = payload.read(artefact), bits_of(restored)
    for name, bits in expected.items():
        same = np.array_equal(decoded[name].view(np.uint16), bits)
        check(same, f"the NumPy reader decodes {name} to other values than the server")


def round_trip(server: str, codec: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compresses, restores and verifies; returns the client's reports of both."""
    artefact, restored = folder / "cache.kvc.safetensors", folder / "restored.safetensors"
    options = ["-force", "-codec", codec, "-input", SAMPLE, "-output"]
    metrics = kv_compress(server, *options, artefact)
    restoring = kv_compress(
        server, "-decompress", "-force", "-input", artefact, "-output", restored
    )
    kv_compress(server, "-verify", artefact)
    verify(metrics, artefact, restored)
    return metrics, restoring


def notes() -> str:
    """What the columns of the table are, and what a profile makes of them."""
    studies = [results.study(path) for path in results.PROFILES]
    rows = [study[f"profile {preset}"] for study in studies for preset in ("high", "ultra")]
    ratios = sorted((row.ratio, row.x1) for row in rows)
    damages = sorted((row.damage, row.percent) for row in rows)
    smaller = f"{ratios[0][1]} to {ratios[-1][1]} times smaller"
    damage = f"{damages[0][1]} % to {damages[-1][1]} %"
    return f"""\
  Ratio, SNR, tensors within the default bounds and MB/s: measured just now, over the server.
  Damage: how much the predictions of SmolLM2-135M-Instruct change (KL divergence), as a part of
  what int4 changes; from {results.MODELS[0]}.md, not of this run.
  auto keeps every tensor within the bounds. A profile, trained once for a model, makes its caches
  {smaller}, at {damage} of the damage of int4 (docs/guides/profiles.md):
  bin/kv-compress -train-profile model.profile -model-label NAME CACHE..."""


def damage_by_codec() -> dict[str, str]:
    """KL divergence as a part of int4's, by codec, from the table of the study."""
    rows = results.study(results.MODELS[0])
    return {name.replace(" ", ":"): f"{row.percent}%" for name, row in rows.items()}


def comparison(rows: list[dict[str, Any]], reports: dict[str, dict[str, Any]]) -> str:
    """The table of codecs, for people."""
    damage = damage_by_codec()
    lines = [HEADING]
    for row in rows:
        codec, snr = row["codec"], row["snr_db"]
        same = row["compressed_size_bytes"] == reports[codec]["compressed_size_bytes"]
        check(same, f"{codec} was measured with another size than it has")
        bounds = f"{row['tensors_within_bounds']} of {row['tensor_count']}"
        lines.append(
            f"  {codec:<14}{row['compression_ratio']:>6.2f}x"
            f"{'exact' if snr is None else f'{snr:.1f} dB':>10}{bounds:>11}{damage[codec]:>9}"
            f"{row['compress_mb_per_second']:>11,.0f}{row['restore_mb_per_second']:>9,.0f}"
        )
    return "\n".join(lines)


def details(metrics: dict[str, Any], restoring: dict[str, Any]) -> str:
    """What one round trip cost, for people."""
    original = metrics["original_size_bytes"]

    def speed(report: dict[str, Any]) -> str:
        return f"{original / 1e3 / report['processing_time_ms']:,.0f} MB/s"

    passed = "passed" if metrics["quality_passed"] else "not passed"
    rows = [
        ("bytes before", f"{original:,}"),
        ("bytes after", f"{metrics['compressed_size_bytes']:,} (headers, scales and checksums)"),
        ("ratio", f"{metrics['compression_ratio']:.3f} against 16-bit values"),
        ("RMSE", f"{metrics['rmse']:.6f}"),
        ("SNR", f"{metrics['snr_db']:.2f} dB"),
        ("cosine", f"{metrics['cosine_similarity']:.6f}"),
        ("max error", f"{metrics['max_error']:.4f}"),
        ("verdict", f"{metrics['quality_level']}, {passed}"),
        *(("", violation) for violation in metrics["violations"]),
        ("compress", speed(metrics)),
        ("decompress", speed(restoring)),
    ]
    return "\n".join(f"  {name:<14}{value}" for name, value in rows)


def quickstart() -> None:
    """Compares the codecs, verifies a round trip of each, and reports."""
    with tempfile.TemporaryDirectory(prefix="kvcompress-") as name:
        folder = Path(name)
        with running_server(folder / "server.log") as server:
            print(f"\nkv-compressd serves on {server}. Compressing {SAMPLE.name} and back:\n")
            trips = {codec: round_trip(server, codec, folder) for codec in CODECS}
            compared = kv_compress(server, "-compare", SAMPLE, "-codec", ",".join(CODECS))
    print(comparison(compared["codecs"], {codec: trip[0] for codec, trip in trips.items()}))
    print(f"\n{notes()}\n\nThe round trip of {SHOWN}:\n\n{details(*trips[SHOWN])}\n\n{NEXT}")


def stop(number: int, _frame: object) -> NoReturn:
    """Ends by an exception, so that the server and the files go too."""
    sys.exit(128 + number)


def main() -> None:
    """Exits with 0 only if the round trip was verified."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        quickstart()
    except NotVerifiedError as error:
        sys.exit(f"quickstart: not verified: {error}")
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
        sys.exit(f"quickstart: not verified: {type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
