# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The JSON of kv-compress: its fields, in its order."""

import json
import math
from typing import Any

from kvcompress.arrays import ITEM_SIZES
from kvcompress.errors import KVCompressError
from kvcompress.payload import Entry, Header
from kvcompress.reports import (
    CompressionReport,
    DecompressionReport,
    Metrics,
    QualityLevel,
    TensorReport,
    Verdict,
)

Json = dict[str, Any]


def compression_json(report: CompressionReport, *, verbose: bool) -> Json:
    """Gives what compressing or measuring prints."""
    metrics = report.metrics
    result: Json = {
        "compression_ratio": report.compression_ratio,
        "original_size_bytes": report.original_size_bytes,
        "compressed_size_bytes": report.compressed_size_bytes,
        "rmse": metrics.rmse,
        "snr_db": metrics.snr_db,
        "cosine_similarity": metrics.cosine_similarity,
        "max_error": metrics.max_error,
        "quality_level": _level(report.verdict),
        "processing_time_ms": 1e3 * report.processing_seconds,
        "quality_passed": report.verdict.passed,
        "violations": list(report.verdict.violations),
        "codec": report.codec,
        "bits_per_value": report.bits_per_value,
        "mse": metrics.mse,
        "mae": metrics.mae,
        "psnr_db": metrics.psnr_db,
        "tensor_count": report.tensor_count,
        "tensors_failed": report.tensors_failed,
        "worst_tensor": _worst(report.worst_tensor),
        "payload_digest": report.payload_digest,
        **_token_metrics(metrics),
    }
    if verbose:
        tensors = report.tensors
        result["tensor_metrics"] = {f"{each.name}_rmse": each.metrics.rmse for each in tensors}
        result["tensors"] = [_tensor(each) for each in tensors]
    return result


def decompression_json(report: DecompressionReport) -> Json:
    """Gives what decompressing prints."""
    return {
        "compression_ratio": report.compression_ratio,
        "original_size_bytes": report.original_size_bytes,
        "compressed_size_bytes": report.compressed_size_bytes,
        "rmse": None,
        "snr_db": None,
        "cosine_similarity": None,
        "max_error": None,
        "quality_level": None,
        "processing_time_ms": 1e3 * report.processing_seconds,
        "quality_passed": None,
        "violations": [],
        "format_version": report.format_version,
        "output_size_bytes": report.output_size_bytes,
        "tensor_count": report.tensor_count,
        "tensors_selected": report.tensors_selected,
        "labels": dict(sorted(report.labels.items())),
        "payload_digest": report.payload_digest,
    }


def damaged_json(error: KVCompressError) -> Json:
    """Gives what verifying prints of an artefact that is damaged, or is none."""
    result: Json = {"verified": False, "code": error.code, "message": error.message}
    if error.reason:
        places = {"tensor": error.tensor, "offset": error.offset, "element": error.element}
        result["reason"] = error.reason
        result.update({key: value for key, value in places.items() if value is not None})
    return result


def info_json(header: Header, file_size: int) -> Json:
    """Gives what listing prints of an artefact of `file_size` bytes."""
    tensors = [_entry(entry) for entry in header.tensors]
    original = sum(tensor["original_size_bytes"] for tensor in tensors)
    elements = sum(_elements(entry) for entry in header.tensors)
    return {
        "format_version": 1,
        "payload_digest": header.checksum,
        "compression_ratio": 2 * elements / file_size,
        "bits_per_value": _ratio(8 * file_size, elements),
        "original_size_bytes": original,
        "compressed_size_bytes": file_size,
        "header_size_bytes": file_size - sum(tensor["payload_size_bytes"] for tensor in tensors),
        "labels": dict(sorted(header.labels.items())),
        "metadata": header.metadata,
        "tensor_count": len(tensors),
        "tensors": tensors,
    }


def render(result: Json) -> bytes:
    """Gives the text of a result."""
    return (json.dumps(result, indent=2, ensure_ascii=False) + "\n").encode(errors="replace")


def _level(verdict: Verdict) -> str | None:
    """Gives the name of a level; None for one not known."""
    return None if verdict.level is QualityLevel.UNSPECIFIED else verdict.level.value


def _token_metrics(metrics: Metrics) -> Json:
    """Gives what is known only of tensors with tokens."""
    return {
        "centred_snr_db": metrics.centred_snr_db,
        "token_snr_db_p1": metrics.token_snr_db_p1,
        "first_token_rmse": metrics.first_token_rmse,
    }


def _worst(tensor: TensorReport | None) -> Json | None:
    """Gives the short form of the worst tensor."""
    if tensor is None:
        return None
    return {
        "name": tensor.name,
        "rmse": tensor.metrics.rmse,
        "snr_db": tensor.metrics.snr_db,
        "max_error": tensor.metrics.max_error,
        "cosine_similarity": tensor.metrics.cosine_similarity,
    }


def _tensor(tensor: TensorReport) -> Json:
    """Gives the full form of a tensor's report."""
    metrics = tensor.metrics
    return {
        "name": tensor.name,
        "dtype": tensor.dtype or None,
        "shape": list(tensor.shape),
        "role": tensor.role,
        "layer": tensor.layer,
        "codec": tensor.codec,
        "original_size_bytes": tensor.original_size_bytes,
        "compressed_size_bytes": tensor.compressed_size_bytes,
        "bits_per_value": tensor.bits_per_value,
        "mse": metrics.mse,
        "rmse": metrics.rmse,
        "mae": metrics.mae,
        "max_error": metrics.max_error,
        "snr_db": metrics.snr_db,
        "psnr_db": metrics.psnr_db,
        "cosine_similarity": metrics.cosine_similarity,
        "quality_level": _level(tensor.verdict),
        "passed": tensor.verdict.passed,
        "violations": list(tensor.verdict.violations),
        "digest": tensor.digest,
        **_token_metrics(metrics),
    }


def _entry(entry: Entry) -> Json:
    """Gives one tensor of an artefact."""
    size, elements = entry.end - entry.begin, _elements(entry)
    return {
        "name": entry.name,
        "codec": entry.codec,
        "dtype": entry.dtype,
        "shape": list(entry.shape),
        "role": {"k": "key", "v": "value"}.get(entry.role),
        "layer": entry.layer,
        "original_size_bytes": elements * ITEM_SIZES[entry.dtype],
        "payload_size_bytes": size,
        "bits_per_value": _ratio(8 * size, elements),
        "digest": entry.digest,
    }


def _elements(entry: Entry) -> int:
    """Gives the number of elements of a tensor."""
    return math.prod(entry.shape)


def _ratio(numerator: int, denominator: int) -> float:
    """Divides; 0 where there is nothing to divide by."""
    return numerator / denominator if denominator else 0.0
