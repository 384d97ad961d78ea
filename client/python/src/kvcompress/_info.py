# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What a server is, can do, and found in its self-test, as plain immutable values.

Fields have the names, meanings and units of the messages of kvcompress.v1.
"""

from dataclasses import dataclass

from kvcompress._export import Exportable
from kvcompress._inputs import printable
from kvcompress._reports import CompressionReport, PresetExpectation
from kvcompress._summary import snr_text
from kvcompress.v1 import compression_service_pb2, server_info_pb2, tensor_pb2


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The bounds a server enforces, all inclusive; see kvcompress.v1.ServerLimits."""

    max_message_bytes: int
    recommended_chunk_bytes: int
    max_header_bytes: int
    max_rank: int
    max_labels: int
    max_stream_memory_bytes: int
    max_tensor_bytes: int
    memory_budget_bytes: int
    min_stream_memory_bytes: int
    stall_seconds: float
    max_call_seconds: float
    max_tensors: int
    max_metadata_entries: int
    max_patterns: int
    max_attention_layers: int
    max_attention_values: int
    max_empty_messages: int
    max_connections: int
    max_connections_per_host: int
    max_profile_bytes: int = 0
    max_profiles: int = 0

    @classmethod
    def from_proto(cls, message: server_info_pb2.ServerLimits) -> "ServerLimits":
        """Takes the values of a message of the API."""
        return cls(
            max_message_bytes=message.max_message_bytes,
            recommended_chunk_bytes=message.recommended_chunk_bytes,
            max_header_bytes=message.max_header_bytes,
            max_rank=message.max_rank,
            max_labels=message.max_labels,
            max_stream_memory_bytes=message.max_stream_memory_bytes,
            max_tensor_bytes=message.max_tensor_bytes,
            memory_budget_bytes=message.memory_budget_bytes,
            min_stream_memory_bytes=message.min_stream_memory_bytes,
            stall_seconds=message.stall_seconds,
            max_call_seconds=message.max_call_seconds,
            max_tensors=message.max_tensors,
            max_metadata_entries=message.max_metadata_entries,
            max_patterns=message.max_patterns,
            max_attention_layers=message.max_attention_layers,
            max_attention_values=message.max_attention_values,
            max_empty_messages=message.max_empty_messages,
            max_connections=message.max_connections,
            max_connections_per_host=message.max_connections_per_host,
            max_profile_bytes=message.max_profile_bytes,
            max_profiles=message.max_profiles,
        )


@dataclass(frozen=True, slots=True)
class CodecParameter:
    """An option of a codec; see kvcompress.v1.CodecParameter.

    Attributes:
        type: `boolean`, `integer`, `decimal`, or `unspecified` where this client is older.
    """

    name: str
    values: tuple[str, ...]
    default_value: str
    description: str
    type: str
    range: str
    required: bool

    @classmethod
    def from_proto(cls, message: server_info_pb2.CodecParameter) -> "CodecParameter":
        """Takes the values of a message of the API."""
        types = server_info_pb2.CodecParameter.Type
        known = message.type if message.type in types.values() else types.TYPE_UNSPECIFIED
        return cls(
            name=message.name,
            values=tuple(message.values),
            default_value=message.default_value,
            description=message.description,
            type=types.Name(known).removeprefix("TYPE_").lower(),
            range=message.range,
            required=message.required,
        )


@dataclass(frozen=True, slots=True)
class CodecInfo:
    """A codec and its traits; see kvcompress.v1.CodecInfo."""

    name: str
    description: str
    parameters: tuple[CodecParameter, ...]
    presets: tuple[str, ...]
    dtypes: tuple[str, ...]
    lossless: bool
    streaming: bool
    fixed_size: bool
    role_aware: bool
    couples_heads: bool
    weighs_tokens: bool

    @classmethod
    def from_proto(cls, message: server_info_pb2.CodecInfo) -> "CodecInfo":
        """Takes the values of a message of the API; types not known are left out."""
        known = tensor_pb2.DataType.values()
        names = [tensor_pb2.DataType.Name(dtype) for dtype in message.dtypes if dtype in known]
        return cls(
            name=message.name,
            description=message.description,
            parameters=tuple(CodecParameter.from_proto(each) for each in message.parameters),
            presets=tuple(message.presets),
            dtypes=tuple(name.removeprefix("DATA_TYPE_") for name in names),
            lossless=message.lossless,
            streaming=message.streaming,
            fixed_size=message.fixed_size,
            role_aware=message.role_aware,
            couples_heads=message.couples_heads,
            weighs_tokens=message.weighs_tokens,
        )


@dataclass(frozen=True, slots=True)
class ProfileInfo:
    """A profile that a server has; see kvcompress.v1.ProfileInfo."""

    name: str
    digest: str
    label: str
    groups: int
    tensors: int
    size_bytes: int
    presets: tuple[str, ...]
    training: str
    expectations: tuple[PresetExpectation, ...] = ()

    @classmethod
    def from_proto(cls, message: server_info_pb2.ProfileInfo) -> "ProfileInfo":
        """Takes the values of a message of the API."""
        return cls(
            name=message.name,
            digest=message.digest,
            label=message.label,
            groups=message.groups,
            tensors=message.tensors,
            size_bytes=message.size_bytes,
            presets=tuple(message.presets),
            training=message.training,
            expectations=tuple(PresetExpectation.from_proto(each) for each in message.expectations),
        )


@dataclass(frozen=True, slots=True, repr=False)
class ServerInfo(Exportable):
    """What a server is and can do; see kvcompress.v1.GetServerInfoResponse.

    Attributes:
        shared_directory: Where the server sees the directory that it shares, if it does.
        profiles: The profiles that it has now, by name.
    """

    version: str
    api_version: str
    format_version: int
    min_format_version: int
    kernels: str
    limits: ServerLimits
    codecs: tuple[CodecInfo, ...]
    byte_compressors: tuple[str, ...]
    shared_directory: str | None = None
    profiles: tuple[ProfileInfo, ...] = ()

    @classmethod
    def from_proto(cls, message: server_info_pb2.GetServerInfoResponse) -> "ServerInfo":
        """Takes the values of a message of the API."""
        return cls(
            version=message.version,
            api_version=message.api_version,
            format_version=message.format_version,
            min_format_version=message.min_format_version,
            kernels=message.kernels,
            limits=ServerLimits.from_proto(message.limits),
            codecs=tuple(CodecInfo.from_proto(codec) for codec in message.codecs),
            byte_compressors=tuple(message.byte_compressors),
            shared_directory=(
                message.shared_directory.path if message.HasField("shared_directory") else None
            ),
            profiles=tuple(ProfileInfo.from_proto(each) for each in message.profiles),
        )

    def __repr__(self) -> str:
        """Returns one line."""
        return (
            f"ServerInfo({printable(self.version)}, API {printable(self.api_version)}, format "
            f"{self.format_version}, {printable(self.kernels)}, {len(self.codecs)} codecs)"
        )


@dataclass(frozen=True, slots=True, repr=False)
class SelfTestResult:
    """Result of one codec: whether it passed, else why not, and the metrics of the run."""

    codec: str
    passed: bool
    message: str
    report: CompressionReport

    @classmethod
    def from_proto(cls, message: compression_service_pb2.SelfTestResult) -> "SelfTestResult":
        """Takes the values of a message of the API."""
        report = CompressionReport.from_proto(message.report)
        return cls(message.codec, message.passed, message.message, report)

    def __repr__(self) -> str:
        """Returns one line."""
        return f"SelfTestResult({_self_test(self)})"


@dataclass(frozen=True, slots=True, repr=False)
class SelfTestReport(Exportable):
    """Whether every codec passed, and one result for each codec and parameter value."""

    passed: bool
    results: tuple[SelfTestResult, ...]

    @classmethod
    def from_proto(cls, message: compression_service_pb2.SelfTestResponse) -> "SelfTestReport":
        """Takes the values of a message of the API."""
        results = tuple(SelfTestResult.from_proto(result) for result in message.results)
        return cls(message.passed, results)

    def __repr__(self) -> str:
        """Returns one line, with the first of the results that failed."""
        failed = [result for result in self.results if not result.passed]
        if not failed:
            verdict = "passed" if self.passed else "not passed"
            return f"SelfTestReport({verdict}, {len(self.results)} results)"
        counts = f"{len(failed)} of {len(self.results)} results failed"
        return f"SelfTestReport({counts}, the first: {_self_test(failed[0])})"


def _self_test(result: SelfTestResult) -> str:
    """Summarizes a result."""
    if not result.passed:
        return f"{printable(result.codec)}, failed: {printable(result.message)}"
    report = result.report
    ratio = f"{report.compression_ratio:.2f}x"
    return f"{printable(result.codec)}, passed, {ratio}, {snr_text(report.metrics)}"
