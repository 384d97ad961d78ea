# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What compression cost and what decompression found, as plain immutable values.

Fields have the names, meanings and units of the messages of kvcompress.v1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvcompress import _html, _summary
from kvcompress._arrays import Array
from kvcompress._export import Exportable, frame
from kvcompress._tensor_report import TensorReport, Verdict
from kvcompress._torch_tensors import load_torch
from kvcompress.v1 import compression_service_pb2, quality_pb2, server_info_pb2
from kvcompress.v1.quality_types import Metrics

if TYPE_CHECKING:
    import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import torch  # type: ignore[import-not-found,unused-ignore]


@dataclass(frozen=True, slots=True)
class RoleCounts:
    """How many tensors of a cache hold what, as declared, or found by patterns or from names.

    Attributes:
        keys: Tensors that hold keys.
        values: Tensors that hold values.
        neither: All others.
    """

    keys: int
    values: int
    neither: int

    @classmethod
    def from_proto(cls, message: quality_pb2.RoleCounts) -> "RoleCounts":
        """Takes the values of a message of the API."""
        return cls(keys=message.keys, values=message.values, neither=message.neither)


@dataclass(frozen=True, slots=True)
class ReportWarning:
    """What is worth knowing about a result that is valid all the same.

    Attributes:
        code: What it is, stable, such as `NO_ROLES`.
        message: One sentence for people, with the remedy.
        tensor: Name of the tensor it is about; empty for the whole cache.
    """

    code: str
    message: str
    tensor: str

    @classmethod
    def from_proto(cls, message: quality_pb2.Warning) -> "ReportWarning":
        """Takes the values of a message of the API."""
        return cls(code=message.code, message=message.message, tensor=message.tensor)


@dataclass(frozen=True, slots=True)
class PresetExpectation:
    """What the training of a profile measured of a preset; see kvcompress.v1.PresetExpectation."""

    preset: str
    ratio: float
    divergence: float
    int4_divergence: float
    least_share: float = 0.0
    most_share: float = 0.0

    @classmethod
    def from_proto(cls, message: server_info_pb2.PresetExpectation) -> "PresetExpectation":
        """Takes the values of a message of the API."""
        return cls(
            preset=message.preset,
            ratio=message.ratio,
            divergence=message.divergence,
            int4_divergence=message.int4_divergence,
            least_share=message.least_share,
            most_share=message.most_share,
        )


@dataclass(frozen=True, slots=True)
class ProfileUse:
    """The profile that an artefact was made with, and that restoring it needs.

    Attributes:
        digest: `sha256:` and 64 digits: the digest of its file.
        label: The label of the model.
        tensor_count: How many tensors are coded with it.
        first_token: Of compression: the position of the cache's first token in its text, as it
            was declared or found.
        fit: Of compression: how well keys fit the profile there, about 1 for those of the model
            and about 0 for others, where that is known.
        expected: Of compression: what the training measured of the preset, where the profile has
            it.
    """

    digest: str
    label: str
    tensor_count: int
    first_token: int | None = None
    fit: float | None = None
    expected: PresetExpectation | None = None

    @classmethod
    def from_report(
        cls,
        message: quality_pb2.CompressionReport | compression_service_pb2.DecompressionReport,
    ) -> "ProfileUse | None":
        """Takes the values of a report of the API; None where no profile was used."""
        if not message.HasField("profile"):
            return None
        use = message.profile
        return cls(
            digest=use.digest,
            label=use.label,
            tensor_count=use.tensor_count,
            first_token=use.first_token if use.HasField("first_token") else None,
            fit=use.fit if use.HasField("fit") else None,
            expected=(
                PresetExpectation.from_proto(use.expected) if use.HasField("expected") else None
            ),
        )


@dataclass(frozen=True, slots=True, repr=False)
class CompressionReport(Exportable):
    """What compression did to a cache, measured on the artefact and on what it decodes to.

    Attributes:
        codec: Codec and parameters that the request resolved to, such as `int4:64`.
        original_size_bytes: Bytes of tensor data in the input.
        compressed_size_bytes: Bytes of the whole artefact.
        compression_ratio: 2 bytes x elements / compressed_size_bytes.
        bits_per_value: 8 x compressed_size_bytes / elements; 0 without elements.
        metrics: Distortion over all tensors pooled.
        verdict: Judgement on the pooled metrics.
        tensor_count: Number of tensors.
        tensors_failed: Number of tensors whose own verdict is not `passed`.
        worst_tensor: The key with the lowest centred SNR, or the tensor with the lowest SNR where
            no key has one; None when every tensor is exact.
        tensors: One report for each tensor in the order of the file; empty if not asked for.
        payload_digest: `xxh3-128:` and 32 digits: identifies the artefact.
        processing_seconds: From the call's first message to the report, on the server.
        roles: How many tensors are recognised as keys, as values, and as neither.
        warnings: What is worth knowing about this result. `compress` and `measure` also issue
            each as a `CompressionWarning`.
        profile: The profile that was used; None for none.
    """

    codec: str
    original_size_bytes: int
    compressed_size_bytes: int
    compression_ratio: float
    bits_per_value: float
    metrics: Metrics
    verdict: Verdict
    tensor_count: int
    tensors_failed: int
    worst_tensor: TensorReport | None
    tensors: tuple[TensorReport, ...]
    payload_digest: str
    processing_seconds: float
    roles: RoleCounts
    warnings: tuple[ReportWarning, ...]
    profile: ProfileUse | None = None

    @classmethod
    def from_proto(cls, message: quality_pb2.CompressionReport) -> "CompressionReport":
        """Takes the values of a message of the API."""
        worst = message.worst_tensor if message.HasField("worst_tensor") else None
        return cls(
            codec=message.codec,
            original_size_bytes=message.original_size_bytes,
            compressed_size_bytes=message.compressed_size_bytes,
            compression_ratio=message.compression_ratio,
            bits_per_value=message.bits_per_value,
            metrics=Metrics.from_proto(message.metrics),
            verdict=Verdict.from_proto(message.verdict),
            tensor_count=message.tensor_count,
            tensors_failed=message.tensors_failed,
            worst_tensor=None if worst is None else TensorReport.from_proto(worst),
            tensors=tuple(TensorReport.from_proto(tensor) for tensor in message.tensors),
            payload_digest=message.payload_digest,
            processing_seconds=message.processing_seconds,
            roles=RoleCounts.from_proto(message.roles),
            warnings=tuple(ReportWarning.from_proto(warning) for warning in message.warnings),
            profile=ProfileUse.from_report(message),
        )

    def __repr__(self) -> str:
        """Returns one line."""
        return f"CompressionReport({_summary.compression(self)})"

    def _repr_html_(self) -> str:
        """Returns what notebooks show: a table, and a chart where tensors are listed."""
        return _html.compression(self)

    def to_pandas(self) -> "pandas.DataFrame":
        """Returns a table with a row for each tensor, and the metrics and the verdict as columns.

        Raises:
            ImportError: pandas is not installed.
            ValueError: The report lists no tensors.
        """
        if self.tensor_count and not self.tensors:
            raise ValueError("the report lists no tensors: ask for it with report_tensors=True")
        return frame(self.tensors)


@dataclass(frozen=True, slots=True, repr=False)
class DecompressionReport(Exportable):
    """What an artefact was found to hold, after every check.

    Attributes:
        format_version: Version of the artefact's format.
        compressed_size_bytes: Bytes of the artefact.
        original_size_bytes: Bytes of tensor data that the whole artefact decodes to.
        output_size_bytes: Bytes of the safetensors file that was sent.
        compression_ratio: 2 bytes x elements / compressed_size_bytes.
        tensor_count: Number of tensors in the artefact, all verified.
        tensors_selected: Number of tensors given back.
        labels: Labels that the artefact carries.
        payload_digest: Identity of the artefact, as CompressionReport has it.
        processing_seconds: From the call's first message to the report, on the server.
        profile: The profile that the artefact needs; None for none.
    """

    format_version: int
    compressed_size_bytes: int
    original_size_bytes: int
    output_size_bytes: int
    compression_ratio: float
    tensor_count: int
    tensors_selected: int
    labels: Mapping[str, str]
    payload_digest: str
    processing_seconds: float
    profile: ProfileUse | None = None

    @classmethod
    def from_proto(
        cls, message: compression_service_pb2.DecompressionReport
    ) -> "DecompressionReport":
        """Takes the values of a message of the API."""
        return cls(
            format_version=message.format_version,
            compressed_size_bytes=message.compressed_size_bytes,
            original_size_bytes=message.original_size_bytes,
            output_size_bytes=message.output_size_bytes,
            compression_ratio=message.compression_ratio,
            tensor_count=message.tensor_count,
            tensors_selected=message.tensors_selected,
            labels=dict(message.labels),
            payload_digest=message.payload_digest,
            processing_seconds=message.processing_seconds,
            profile=ProfileUse.from_report(message),
        )

    def __repr__(self) -> str:
        """Returns one line."""
        return f"DecompressionReport({_summary.decompression(self)})"

    def _repr_html_(self) -> str:
        """Returns the table that notebooks show."""
        return _html.decompression(self)


@dataclass(frozen=True, slots=True, repr=False)
class CompressionResult:
    """The result of Client.compress.

    Attributes:
        report: Sizes and quality.
        artefact: The artefact, when no output path was given.
        path: Where the artefact was written, when one was.
        reconstructed: The safetensors file that decompression would produce, when it was asked
            for without a path; `load_arrays` opens it.
    """

    report: CompressionReport
    artefact: bytes | None
    path: Path | None
    reconstructed: bytes | None

    def __repr__(self) -> str:
        """Returns one line."""
        place = "in memory" if self.path is None else f"in {str(self.path)!r}"
        return f"CompressionResult({_summary.compression(self.report)}, {place})"

    def _repr_html_(self) -> str:
        """Returns what notebooks show of the report."""
        return _html.compression(self.report)


@dataclass(frozen=True, slots=True, repr=False)
class InMemoryCompressionResult(CompressionResult):
    """The result of Client.compress where no output path was given.

    Attributes:
        artefact: The artefact.
    """

    artefact: bytes


@dataclass(frozen=True, slots=True, repr=False)
class DecompressionResult:
    """The result of Client.decompress.

    Attributes:
        report: What was verified.
        tensors: Arrays by name in the order of the file, read-only views of `safetensors`,
            when no output path was given. See `load_arrays` for their types.
        metadata: The source's metadata, when no output path was given.
        safetensors: The restored safetensors file, when no output path was given.
        path: Where that file was written, when one was.
    """

    report: DecompressionReport
    tensors: Mapping[str, Array] | None
    metadata: Mapping[str, str] | None
    safetensors: bytes | None
    path: Path | None

    def __repr__(self) -> str:
        """Returns one line."""
        place = "verified only" if self.safetensors is None else "in memory"
        place = place if self.path is None else f"in {str(self.path)!r}"
        return f"DecompressionResult({_summary.decompression(self.report)}, {place})"

    def _repr_html_(self) -> str:
        """Returns what notebooks show of the report."""
        return _html.decompression(self.report)

    def torch_tensors(self) -> "dict[str, torch.Tensor]":
        """Returns copies as torch tensors by name, in the order of the file, on the CPU.

        Returns:
            Tensors of the types that the source had.

        Raises:
            ImportError: torch is not installed.
            ValueError: The tensors are in a file, or were verified only.
        """
        if self.safetensors is None:
            raise ValueError("there are no tensors in memory")
        return load_torch(self.safetensors)


@dataclass(frozen=True, slots=True, repr=False)
class InMemoryDecompressionResult(DecompressionResult):
    """The result of Client.decompress where no output path was given, and not only to verify.

    Attributes:
        tensors: Arrays by name in the order of the file, read-only views of `safetensors`.
        metadata: The source's metadata.
        safetensors: The restored safetensors file.
    """

    tensors: Mapping[str, Array]
    metadata: Mapping[str, str]
    safetensors: bytes
