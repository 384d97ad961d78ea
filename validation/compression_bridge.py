# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Compresses files of KV caches over gRPC, under the names that validation has always used.

The service is the one that the environment variable KVCOMPRESS_SERVER names (an address as
gRPC writes it), else one that is started for this process and ends with it.
"""

import math
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

import kvcompress
from kvcompress.options import codec_string

REPOSITORY = Path(__file__).resolve().parents[1]


class CompressionError(subprocess.CalledProcessError):
    """A call that failed, with the service's own words; `returncode` is that of kv-compress.

    The name of the base class is what callers of old catch; no process runs.
    """

    def __init__(self, what: str, reason: BaseException) -> None:
        """Takes what was tried and why it failed."""
        super().__init__(1, what, stderr=str(reason))

    def __str__(self) -> str:
        """Describes what failed and why."""
        return f"{self.cmd} failed: {self.stderr}"


@dataclass
class CompressionMetrics:
    """What the service measured.

    Attributes:
        compression_ratio: 2 bytes x elements / bytes of the whole artefact.
        original_size_bytes: Bytes of tensor data in the input.
        compressed_size_bytes: Bytes of the whole artefact.
        rmse: Root mean squared error over all tensors pooled.
        snr_db: Signal-to-noise ratio in dB; inf when every value is exact.
        cosine_similarity: Cosine similarity of input and output.
        max_error: Largest absolute error.
        quality_level: EXCELLENT, GOOD, ACCEPTABLE or POOR.
        processing_time_ms: Milliseconds that the service took.
        passed: Whether the pooled values are within the usual thresholds.
        violations: One sentence for each threshold that does not hold.
        tensors: Number of tensors; 0 when not known.
        tensors_failed: Number of tensors that are not within the usual thresholds themselves.
        tensor_snr_db: Signal-to-noise ratios by tensor in dB, inf when exact.
    """

    compression_ratio: float
    original_size_bytes: int
    compressed_size_bytes: int
    rmse: float
    snr_db: float
    cosine_similarity: float
    max_error: float
    quality_level: str
    processing_time_ms: float
    passed: bool
    violations: list[str]
    tensors: int = 0
    tensors_failed: int = 0
    tensor_snr_db: dict[str, float] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Self:
        """Takes the JSON of kv-compress; what it lacks becomes 0, empty or False.

        `snr_db` is null there when every value is exact, and inf here.
        """
        snr = d.get("snr_db", 0.0)
        return cls(
            compression_ratio=float(d.get("compression_ratio", 0.0)),
            original_size_bytes=int(d.get("original_size_bytes", 0)),
            compressed_size_bytes=int(d.get("compressed_size_bytes", 0)),
            rmse=float(d.get("rmse", 0.0)),
            snr_db=math.inf if snr is None else float(snr),
            cosine_similarity=float(d.get("cosine_similarity", 0.0)),
            max_error=float(d.get("max_error", 0.0)),
            quality_level=str(d.get("quality_level", "UNKNOWN")),
            processing_time_ms=float(d.get("processing_time_ms", 0.0)),
            passed=bool(d.get("quality_passed", d.get("passed", False))),
            violations=list(d.get("violations") or []),
        )

    @classmethod
    def from_report(cls, report: kvcompress.CompressionReport) -> Self:
        """Takes a report of the service."""
        metrics, verdict = report.metrics, report.verdict
        return cls(
            compression_ratio=report.compression_ratio,
            original_size_bytes=report.original_size_bytes,
            compressed_size_bytes=report.compressed_size_bytes,
            rmse=metrics.rmse,
            snr_db=math.inf if metrics.snr_db is None else metrics.snr_db,
            cosine_similarity=metrics.cosine_similarity,
            max_error=metrics.max_error,
            quality_level=verdict.level.value,
            processing_time_ms=report.processing_seconds * 1e3,
            passed=verdict.passed,
            violations=list(verdict.violations),
            tensors=report.tensor_count,
            tensors_failed=report.tensors_failed,
            tensor_snr_db={
                each.name: math.inf if each.metrics.snr_db is None else each.metrics.snr_db
                for each in report.tensors
            },
        )


def find_cli_binary() -> str:
    """Finds kv-compress; kv-compressd is looked for next to it.

    Returns:
        The file that KV_COMPRESS_PATH names, else ../bin/kv-compress next to this folder, else
        ./bin/kv-compress, else the one on the PATH.

    Raises:
        FileNotFoundError: It is in none of these.
    """
    places = [REPOSITORY / "bin" / "kv-compress", Path.cwd() / "bin" / "kv-compress"]
    if named := os.environ.get("KV_COMPRESS_PATH"):
        places.insert(0, Path(named))
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return str(place)
    if on_path := shutil.which("kv-compress"):
        return on_path
    raise FileNotFoundError(
        "kv-compress is neither in bin/ nor on the PATH. Build it with deploy/build, activate the "
        "environment that has the wheel, or name it in KV_COMPRESS_PATH"
    )


def check_cli_available() -> bool:
    """Returns whether kv-compress is found."""
    try:
        find_cli_binary()
    except FileNotFoundError:
        return False
    return True


def check_service() -> None:
    """Finds the service before anything takes long.

    Raises:
        FileNotFoundError: No server is named, and kv-compress is not found.
    """
    if not os.environ.get("KVCOMPRESS_SERVER"):
        find_cli_binary()


def open_client() -> kvcompress.Client:
    """Returns the client of the server that KVCOMPRESS_SERVER names, else of one of its own.

    Later calls give the same client; it and its server end with this process.

    Raises:
        FileNotFoundError: No server is named, and there is no kv-compressd to start.
        OSError: The server does not start.
    """
    if target := os.environ.get("KVCOMPRESS_SERVER"):
        return _client(target, None)
    return _client(None, Path(find_cli_binary()).parent)


@cache
def _client(target: str | None, folder: Path | None) -> kvcompress.Client:
    """Returns a client of a server, or of one of its own, from a folder if it is there."""
    if folder is not None and (folder / "kv-compressd").is_file():
        os.environ.setdefault("KVCOMPRESS_BIN_DIR", str(folder))
    return kvcompress.Client(target)


@contextmanager
def _service(what: str) -> Iterator[kvcompress.Client]:
    """Yields the client, and converts its errors to CompressionError."""
    client = open_client()
    try:
        yield client
    except (kvcompress.KVCompressError, OSError, ValueError) as error:
        raise CompressionError(what, error) from error


def _codec(group_size: int, codec: str, preset: str, sparsity: float) -> str:
    """Returns the codec string; a group size only to codecs that the default is not for."""
    values: dict[str, float | str] = {} if group_size == 64 else {"group_size": group_size}
    if sparsity > 0 and codec == "int4":
        codec = "sparse"
    if codec == "sparse":
        values["sparsity"] = sparsity
    front, _, compressor = codec.partition("+")
    name, _, parameters = front.partition(":")
    values = {"name": name, "preset": parameters or preset, **values}
    return codec_string({**values, "byte_compressor": compressor})


def _show(report: kvcompress.CompressionReport) -> None:
    """Prints a line for each tensor."""
    for tensor in report.tensors:
        snr = tensor.metrics.snr_db
        print(
            f"    {tensor.name}: {tensor.codec}, {tensor.bits_per_value:.2f} bits, "
            f"RMSE {tensor.metrics.rmse:.6f}, SNR "
            + ("exact" if snr is None else f"{snr:.2f} dB")
            + ("" if tensor.verdict.passed else "; " + "; ".join(tensor.verdict.violations))
        )


def compress_kv_cache(
    input_path: str,
    output_path: str,
    group_size: int = 64,
    sparsity: float = 0.0,
    verbose: bool = False,
    *,
    codec: str = "int4",
    preset: str = "",
    rope_theta: float | None = None,
) -> CompressionMetrics:
    """Compresses a file of a KV cache.

    Args:
        input_path: A safetensors file.
        output_path: Where the artefact goes; nothing is left there when the call fails.
        group_size: Values that share a scale, for codecs with groups: 32, 64 or 128.
        sparsity: Share of the values that become zero, from 0 to 1; above 0, `int4` becomes
            `sparse`.
        verbose: Whether to print a line for each tensor.
        codec: Name of the codec.
        preset: Preset of the codec.
        rope_theta: Base of the rotary embedding in the keys; found out when None.

    Returns:
        Sizes and quality, measured by the service.

    Raises:
        CompressionError: The call failed; a subprocess.CalledProcessError.
        FileNotFoundError: There is no server, and none to start.
    """
    with _service(f"compressing {input_path}") as client:
        report = client.compress(
            Path(input_path),
            Path(output_path),
            overwrite=True,
            rope_theta=rope_theta,
            codec=_codec(group_size, codec, preset, sparsity),
        ).report
    if verbose:
        _show(report)
    return CompressionMetrics.from_report(report)


def decompress_kv_cache(
    input_path: str,
    output_path: str,
    verbose: bool = False,
) -> CompressionMetrics:
    """Restores a file of a KV cache from an artefact, after every check.

    Args:
        input_path: The artefact.
        output_path: Where the safetensors file goes; nothing is left there on failure.
        verbose: Whether to print what was found.

    Returns:
        Sizes and time. There is nothing to compare with, so the errors are nan; `passed` says
        that every checksum held.

    Raises:
        CompressionError: The call failed; a subprocess.CalledProcessError.
        FileNotFoundError: There is no server, and none to start.
    """
    start = time.monotonic()
    with _service(f"restoring {input_path}") as client:
        report = client.decompress(Path(input_path), Path(output_path), overwrite=True).report
    if verbose:
        print(f"    {report.tensor_count} tensors verified, {report.payload_digest}")
    return CompressionMetrics(
        compression_ratio=report.compression_ratio,
        original_size_bytes=report.original_size_bytes,
        compressed_size_bytes=report.compressed_size_bytes,
        rmse=math.nan,
        snr_db=math.nan,
        cosine_similarity=math.nan,
        max_error=math.nan,
        quality_level="UNKNOWN",
        processing_time_ms=(time.monotonic() - start) * 1e3,
        passed=True,
        violations=[],
    )


def get_compression_metrics(
    input_path: str,
    group_size: int = 64,
    verbose: bool = False,
    *,
    codec: str = "int4",
    preset: str = "",
) -> CompressionMetrics:
    """Measures what compress_kv_cache would give, and writes nothing.

    Args:
        input_path: A safetensors file.
        group_size: Values that share a scale, for codecs with groups: 32, 64 or 128.
        verbose: Whether to print a line for each tensor.
        codec: Name of the codec.
        preset: Preset of the codec.

    Returns:
        Sizes and quality, measured by the service.

    Raises:
        CompressionError: The call failed; a subprocess.CalledProcessError.
        FileNotFoundError: There is no server, and none to start.
    """
    with _service(f"measuring {input_path}") as client:
        report = client.measure(Path(input_path), codec=_codec(group_size, codec, preset, 0.0))
    if verbose:
        _show(report)
    return CompressionMetrics.from_report(report)


def print_metrics_report(metrics: CompressionMetrics, title: str = "Compression Metrics") -> None:
    """Prints metrics for people.

    Args:
        metrics: What to print.
        title: First line.
    """
    line = "=" * 60
    print(f"{line}\n  {title}\n{line}")
    print(f"  Compression Ratio:  {metrics.compression_ratio:.2f}x")
    print(f"  Original Size:      {metrics.original_size_bytes:,} bytes")
    print(f"  Compressed Size:    {metrics.compressed_size_bytes:,} bytes")
    print(f"  Processing Time:    {metrics.processing_time_ms:.2f} ms")
    print("-" * 60)
    print(f"  RMSE:               {metrics.rmse:.6f}")
    print(f"  Max Error:          {metrics.max_error:.6f}")
    print(f"  SNR:                {format_db(metrics.snr_db)}")
    print(f"  Cosine Similarity:  {metrics.cosine_similarity:.6f}")
    print(f"  Quality Level:      {metrics.quality_level}")
    print(f"  Passed:             {'yes' if metrics.passed else 'no'}")
    for violation in metrics.violations:
        print(f"    - {violation}")
    print(line)


def format_db(snr_db: float) -> str:
    """Writes a signal-to-noise ratio."""
    return "exact" if math.isinf(snr_db) else f"{snr_db:.2f} dB"
