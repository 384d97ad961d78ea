# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""KV Compress: compresses KV caches of LLM inference with measured quality.

    with kvcompress.Client("127.0.0.1:50051") as client:
        report = client.compress("cache.safetensors", "small.safetensors").report
        client.decompress("small.safetensors", "restored.safetensors")

`kvcompress.Client()` starts a server of its own, `kvcompress.aio.Client` is for asyncio.
`kvcompress.payload` reads artefacts without the service.
"""

# Imported on first use, so that `python -m kvcompress` starts without gRPC and NumPy.
from importlib import import_module
from typing import TYPE_CHECKING

from kvcompress._version import __version__

if TYPE_CHECKING:
    from kvcompress import aio, payload
    from kvcompress._arrays import Array, load_arrays
    from kvcompress._client import Client
    from kvcompress._info import (
        CodecInfo,
        CodecParameter,
        PresetExpectation,
        ProfileInfo,
        SelfTestReport,
        SelfTestResult,
        ServerInfo,
        ServerLimits,
    )
    from kvcompress._reports import (
        CompressionReport,
        CompressionResult,
        DecompressionReport,
        DecompressionResult,
        ProfileUse,
        ReportWarning,
        RoleCounts,
    )
    from kvcompress._tensor_report import MissedBound, QualityLevel, Rope, TensorReport, Verdict
    from kvcompress._torch_tensors import load_torch
    from kvcompress._warnings import CompressionWarning
    from kvcompress.errors import (
        AbortedError,
        AlreadyExistsError,
        CancelledError,
        DataLossError,
        DeadlineExceededError,
        FailedPreconditionError,
        InternalError,
        InvalidArgumentError,
        KVCompressError,
        NotFoundError,
        OutOfRangeError,
        PermissionDeniedError,
        QualityError,
        ResourceExhaustedError,
        UnauthenticatedError,
        UnavailableError,
        UnimplementedError,
        UnknownError,
    )
    from kvcompress.v1.quality_types import Metrics, Thresholds

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "Array",
    "CancelledError",
    "Client",
    "CodecInfo",
    "CodecParameter",
    "CompressionReport",
    "CompressionResult",
    "CompressionWarning",
    "DataLossError",
    "DeadlineExceededError",
    "DecompressionReport",
    "DecompressionResult",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "KVCompressError",
    "Metrics",
    "MissedBound",
    "NotFoundError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "PresetExpectation",
    "ProfileInfo",
    "ProfileUse",
    "QualityError",
    "QualityLevel",
    "ReportWarning",
    "ResourceExhaustedError",
    "RoleCounts",
    "Rope",
    "SelfTestReport",
    "SelfTestResult",
    "ServerInfo",
    "ServerLimits",
    "TensorReport",
    "Thresholds",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
    "Verdict",
    "__version__",
    "aio",
    "load_arrays",
    "load_torch",
    "payload",
]

# Where each name comes from; names that end in Error come from kvcompress.errors.
_MODULES = {
    "Array": "_arrays",
    "Client": "_client",
    "CodecInfo": "_info",
    "CodecParameter": "_info",
    "CompressionReport": "_reports",
    "CompressionResult": "_reports",
    "CompressionWarning": "_warnings",
    "DecompressionReport": "_reports",
    "DecompressionResult": "_reports",
    "Metrics": "v1.quality_types",
    "MissedBound": "_tensor_report",
    "PresetExpectation": "_info",
    "ProfileInfo": "_info",
    "ProfileUse": "_reports",
    "QualityLevel": "_tensor_report",
    "ReportWarning": "_reports",
    "RoleCounts": "_reports",
    "Rope": "_tensor_report",
    "SelfTestReport": "_info",
    "SelfTestResult": "_info",
    "ServerInfo": "_info",
    "ServerLimits": "_info",
    "TensorReport": "_tensor_report",
    "Thresholds": "v1.quality_types",
    "Verdict": "_tensor_report",
    "load_arrays": "_arrays",
    "load_torch": "_torch_tensors",
}


if not TYPE_CHECKING:  # else every name would be one to a type checker

    def __getattr__(name: str) -> object:
        """Imports a name on its first use (PEP 562)."""
        if name in {"aio", "payload"}:
            return import_module(f"kvcompress.{name}")
        if name not in __all__:
            raise AttributeError(f"module 'kvcompress' has no attribute {name!r}")
        value = getattr(import_module(f"kvcompress.{_MODULES.get(name, 'errors')}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Lists what there is, imported or not."""
    return sorted({*globals(), *__all__})
