# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""KV Compress: compresses KV caches of LLM inference with measured quality.

    with kvcompress.Client("127.0.0.1:50051") as client:
        report = client.compress("cache.safetensors", "small.safetensors").report
        client.decompress("small.safetensors", "restored.safetensors")

`kvcompress.Client()` starts a server of its own, `kvcompress.aio.Client` is for asyncio.
`kvcompress.payload` reads artefacts without the service.
"""

from kvcompress import aio, payload
from kvcompress._arrays import Array, load_arrays
from kvcompress._client import Client
from kvcompress._gate import MissedBound
from kvcompress._info import (
    CodecInfo,
    CodecParameter,
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
    QualityLevel,
    ReportWarning,
    RoleCounts,
    TensorReport,
    Verdict,
)
from kvcompress._torch_tensors import load_torch
from kvcompress._version import __version__
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
    "QualityError",
    "QualityLevel",
    "ReportWarning",
    "ResourceExhaustedError",
    "RoleCounts",
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
