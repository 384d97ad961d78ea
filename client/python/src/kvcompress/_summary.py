# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""One line on a report or a result, for `repr`. Never what an artefact holds."""

from typing import TYPE_CHECKING

from kvcompress._inputs import printable

if TYPE_CHECKING:
    from kvcompress._reports import CompressionReport, DecompressionReport
    from kvcompress._tensor_report import TensorReport
    from kvcompress.v1.quality_types import Metrics

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def size_text(size: int) -> str:
    """Returns a number of bytes in a unit of three digits or less, such as `1.9 MB`."""
    number, unit = float(size), 0
    while number >= 999.5 and unit + 1 < len(_UNITS):
        number, unit = number / 1000, unit + 1
    return f"{number:.3g} {_UNITS[unit]}"


def snr_text(metrics: "Metrics") -> str:
    """Returns the signal-to-noise ratios, that of keys first; `exact` where there is no error."""
    if metrics.snr_db is None:
        return "exact"
    keys = metrics.centred_snr_db
    first = "" if keys is None else f"keys' SNR {keys:.2f} dB, "
    return f"{first}SNR {metrics.snr_db:.2f} dB"


def verdict_text(report: "CompressionReport") -> str:
    """Returns the level, and how many tensors miss bounds."""
    known = report.verdict.level.value != "UNSPECIFIED"
    words = [report.verdict.level.value] if known else []
    if report.tensors_failed:
        words.append(f"{report.tensors_failed} of {report.tensor_count} tensors miss bounds")
    else:
        words.append("passed" if report.verdict.passed else "not passed")
        words.append(f"{report.tensor_count} tensor{'' if report.tensor_count == 1 else 's'}")
    return ", ".join(words)


def compression(report: "CompressionReport") -> str:
    """Summarizes a compression."""
    sizes = f"{size_text(report.original_size_bytes)} -> {size_text(report.compressed_size_bytes)}"
    ratio = f"{report.compression_ratio:.2f}x"
    codec = printable(report.codec)
    return ", ".join([codec, ratio, snr_text(report.metrics), verdict_text(report), sizes])


def tensor(report: "TensorReport") -> str:
    """Summarizes what became of a tensor."""
    layer = "" if report.layer is None else f" of layer {report.layer}"
    return ", ".join(
        [
            repr(report.name),
            *([] if report.role is None else [f"{report.role}{layer}"]),
            f"{report.dtype} {list(report.shape)}",
            printable(report.codec),
            f"{report.bits_per_value:.2f} bits per value",
            snr_text(report.metrics),
            "passed" if report.verdict.passed else "not passed",
        ]
    )


def decompression(report: "DecompressionReport") -> str:
    """Summarizes a decompression."""
    sizes = f"{size_text(report.compressed_size_bytes)} -> {size_text(report.output_size_bytes)}"
    count = f"{report.tensors_selected} of {report.tensor_count} tensors"
    return f"{count}, every checksum right, {sizes}"
