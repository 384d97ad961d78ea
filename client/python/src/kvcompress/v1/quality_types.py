# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The metrics and the thresholds of quality.proto as plain values. Written by ./generate."""

from dataclasses import asdict, dataclass
from typing import Any, TypedDict

from kvcompress.v1 import quality_pb2


@dataclass(frozen=True, slots=True)
class Metrics:
    """What compression changed; a metric is None where the API does not set it.

    Distortion between source values x and decoded values y, with e = y - x and sums over the n
    elements of one tensor, or of all tensors pooled. Sums are kept in double precision, in blocks.
    y is the value after rounding to the source type, exactly what Decompress returns.

    Attributes:
        elements: Number of elements n.
        mse: Mean squared error, sum e^2 / n.
        rmse: Root of the mean squared error, in the unit of the values.
        mae: Mean absolute error, sum |e| / n.
        max_error: Largest |e|.
        snr_db: Signal-to-noise ratio, 10 log10(sum x^2 / sum e^2) dB. Not set when the
            reconstruction is exact.
        psnr_db: Peak signal-to-noise ratio, 20 log10(max |x| / RMSE) dB. Not set when the
            reconstruction is exact.
        cosine_similarity: Cosine similarity of x and y as vectors, in [-1, 1]; 1 when the
            reconstruction is exact, 0 when only one of the vectors is zero.
        centred_snr_db: Signal-to-noise ratio of keys after the mean over tokens of each channel of
            each head was taken from the source, in dB: what all tokens share carries no information
            in attention. Only for keys [batch, heads, tokens, head_dim] of at most 65,536 channels;
            not set when the reconstruction is exact. At least -300.
        token_snr_db_p1: 1st percentile, by nearest rank, of the signal-to-noise ratios of single
            tokens of single heads, in dB. Over several tensors the least of theirs. Only for
            [batch, heads, tokens, head_dim] of at most 65,536 channels; not set when at most 1 % of
            the tokens have an error. At least -300.
        first_token_rmse: RMSE of token 0, which attention leans on most. Only for [batch, heads,
            tokens, head_dim] of at most 65,536 channels.
    """

    elements: int
    mse: float
    rmse: float
    mae: float
    max_error: float
    snr_db: float | None
    psnr_db: float | None
    cosine_similarity: float
    centred_snr_db: float | None
    token_snr_db_p1: float | None
    first_token_rmse: float | None

    @classmethod
    def from_proto(cls, message: quality_pb2.QualityMetrics) -> "Metrics":
        """Takes the values of a message of the API."""
        values: dict[str, Any] = {
            field.name: getattr(message, field.name)
            if not field.has_presence or message.HasField(field.name)  # type: ignore[arg-type]
            else None
            for field in message.DESCRIPTOR.fields
        }
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Bounds on the metrics; None takes the server's default.

    Attributes:
        max_rmse: RMSE must be below this. Default 0.10.
        max_error: Largest absolute error must be below this. Default 0.5.
        min_snr_db: Signal-to-noise ratio must be above this, in dB. Default 18.
        min_cosine_similarity: Cosine similarity must be above this. Default 0.99.
        min_centred_snr_db: Centred signal-to-noise ratio of keys must be above this, in dB. Not
            checked by default. A key with an error whose shape has no such metric does not hold it.
        min_token_snr_db_p1: 1st percentile of per-token signal-to-noise ratios must be above this,
            in dB. Not checked by default. A key or value with an error whose shape has no such
            metric does not hold it.
    """

    max_rmse: float | None = None
    max_error: float | None = None
    min_snr_db: float | None = None
    min_cosine_similarity: float | None = None
    min_centred_snr_db: float | None = None
    min_token_snr_db_p1: float | None = None

    def to_proto(self) -> quality_pb2.QualityThresholds:
        """Gives the message of the API."""
        return quality_pb2.QualityThresholds(**asdict(self))


class ThresholdArguments(TypedDict, total=False):
    """The fields of Thresholds, as keyword arguments or as a mapping."""

    max_rmse: float | None
    max_error: float | None
    min_snr_db: float | None
    min_cosine_similarity: float | None
    min_centred_snr_db: float | None
    min_token_snr_db_p1: float | None
