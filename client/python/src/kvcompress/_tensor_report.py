# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What compression did to one tensor, as plain immutable values.

Fields have the names, meanings and units of the messages of kvcompress.v1.
"""

import enum
import math
from dataclasses import dataclass

from kvcompress import _summary
from kvcompress._arrays import FILE_TYPES
from kvcompress._export import Exportable
from kvcompress._inputs import printable
from kvcompress.v1 import quality_pb2, rope_pb2, tensor_pb2
from kvcompress.v1.quality_types import Metrics


class QualityLevel(enum.Enum):
    """The levels of quality, best first; see kvcompress.v1.QualityLevel for their bounds."""

    EXCELLENT = "EXCELLENT"
    GOOD = "GOOD"
    ACCEPTABLE = "ACCEPTABLE"
    POOR = "POOR"
    UNSPECIFIED = "UNSPECIFIED"


@dataclass(frozen=True, slots=True)
class MissedBound:
    """A bound that does not hold.

    Attributes:
        tensor: Name of the tensor; None of all tensors pooled.
        metric: Name of the metric, as in Metrics.
        value: What was measured; None where the tensor's shape has no such metric.
        bound: Name of the bound, as in Thresholds.
        limit: The bound's value.
        requested: Whether the call set it; otherwise it is the server's default.
    """

    tensor: str | None
    metric: str
    value: float | None
    bound: str
    limit: float
    requested: bool

    @classmethod
    def from_proto(cls, message: quality_pb2.MissedBound, tensor: str | None) -> "MissedBound":
        """Takes the values of a message of the API, and the name of the tensor."""
        return cls(
            tensor=tensor,
            metric=message.metric,
            value=message.value if message.HasField("value") else None,
            bound=message.bound,
            limit=message.limit,
            requested=message.requested,
        )

    def __str__(self) -> str:
        """Returns a sentence."""
        side = "below" if self.bound.startswith("max_") else "above"
        metric = printable(self.metric)
        whose = "all tensors" if self.tensor is None else f"tensor {self.tensor!r}"
        if self.value is None:
            return (
                f"{metric} of {whose} is not known for its shape, so it is not {side} "
                f"{self.limit:g}"
            )
        return f"{metric} {self.value:.5g} of {whose} is not {side} {self.limit:g}"

    @property
    def excess(self) -> float:
        """By how much it is missed, relative to the limit; infinite where nobody knows."""
        if self.value is None:
            return math.inf
        return abs(self.value - self.limit) / (abs(self.limit) or 1)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement on one tensor or on all tensors pooled.

    Attributes:
        passed: Whether every threshold holds.
        level: The level reached.
        violations: One sentence for each threshold that does not hold.
        missed: The same thresholds as numbers.
    """

    passed: bool
    level: QualityLevel
    violations: tuple[str, ...]
    missed: tuple[MissedBound, ...]

    @classmethod
    def from_proto(
        cls, message: quality_pb2.QualityVerdict, tensor: str | None = None
    ) -> "Verdict":
        """Takes the values of a message of the API; a level not known is UNSPECIFIED.

        Args:
            message: The message.
            tensor: Name of the tensor; None of all tensors pooled.
        """
        known = message.level in quality_pb2.QualityLevel.values()
        name = quality_pb2.QualityLevel.Name(message.level) if known else "UNSPECIFIED"
        return cls(
            passed=message.passed,
            level=QualityLevel(name.removeprefix("QUALITY_LEVEL_")),
            violations=tuple(message.violations),
            missed=tuple(MissedBound.from_proto(each, tensor) for each in message.missed),
        )


_ROLES = {tensor_pb2.TENSOR_ROLE_KEY: "key", tensor_pb2.TENSOR_ROLE_VALUE: "value"}


@dataclass(frozen=True, slots=True)
class Rope:
    """A rotary position embedding that was removed from a tensor.

    Attributes:
        theta: Its base.
        pairs: `halves` or `interleaved`.
        first_channel: Channels of a head before the rotated ones.
        rotary_channels: Rotated channels of a head; 0 for all.
        scaling: `linear`, `llama3`, `yarn`, or None.
        declared: Whether the caller declared it; else it was found out from the values.
    """

    theta: float
    pairs: str
    first_channel: int
    rotary_channels: int
    scaling: str | None
    declared: bool

    @classmethod
    def from_proto(cls, message: rope_pb2.RopeFinding) -> "Rope":
        """Takes the values of a message of the API."""
        embedding = message.embedding
        interleaved = embedding.pairs == rope_pb2.ROPE_PAIRS_INTERLEAVED
        return cls(
            theta=embedding.theta,
            pairs="interleaved" if interleaved else "halves",
            first_channel=embedding.first_channel,
            rotary_channels=embedding.rotary_channels,
            scaling=embedding.scaling.WhichOneof("scaling"),
            declared=message.declared,
        )


@dataclass(frozen=True, slots=True, repr=False)
class TensorReport(Exportable):
    """What compression did to one tensor, or to one view of a tensor in a layout.

    Attributes:
        name: Name in the source; of one of several views with what sets it apart, as in
            `cache[layer=3,role=key]`.
        dtype: As safetensors names it, such as `BF16`; empty for a type this client does not know.
        shape: Dimensions of the source; of a view [batch, heads, tokens, head_dim].
        role: `key`, `value`, or None.
        layer: Index of the layer, or None.
        codec: Codec and parameters, such as `int4:64`.
        original_size_bytes: Bytes of source data.
        compressed_size_bytes: Bytes of payload, without the header.
        bits_per_value: Payload bits per element; 0 for an empty tensor.
        metrics: Distortion.
        verdict: Judgement under the thresholds of the request.
        digest: XXH3-128 of the payload, 32 hexadecimal digits.
        rope: The rotary embedding that was removed before coding; None where none was.
        layout: Of a view, the layout of the tensor, such as `t(hd):h=3`; else empty.
        profile_group: The group of the profile that the tensor was coded in; None where it was
            coded by itself. The payload of a group counts for its last tensor.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str | None
    layer: int | None
    codec: str
    original_size_bytes: int
    compressed_size_bytes: int
    bits_per_value: float
    metrics: Metrics
    verdict: Verdict
    digest: str
    rope: Rope | None = None
    layout: str = ""
    profile_group: int | None = None

    @classmethod
    def from_proto(cls, message: quality_pb2.TensorReport) -> "TensorReport":
        """Takes the values of a message of the API."""
        return cls(
            name=message.name,
            dtype=FILE_TYPES.get(message.dtype, ""),
            shape=tuple(message.shape),
            role=_ROLES.get(message.role),
            layer=message.layer if message.HasField("layer") else None,
            codec=message.codec,
            original_size_bytes=message.original_size_bytes,
            compressed_size_bytes=message.compressed_size_bytes,
            bits_per_value=message.bits_per_value,
            metrics=Metrics.from_proto(message.metrics),
            verdict=Verdict.from_proto(message.verdict, message.name),
            digest=message.digest,
            rope=Rope.from_proto(message.rope) if message.HasField("rope") else None,
            layout=message.layout,
            profile_group=message.profile_group if message.HasField("profile_group") else None,
        )

    def __repr__(self) -> str:
        """Returns one line."""
        return f"TensorReport({_summary.tensor(self)})"
