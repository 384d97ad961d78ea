# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the validator found, and how it says so."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from compression_bridge import CompressionMetrics, format_db
from measure.validation import Outcome

PERPLEXITY_THRESHOLD = 0.5
"""Largest acceptable rise of perplexity: KVQuant's standard."""

LINE = "=" * 60


@dataclass
class ValidationResult:
    """What a validation found. What was not measured is nan.

    Attributes:
        baseline_perplexity: Of the tokens after the prefix, with the model's own cache.
        compressed_perplexity: Of the same tokens, with the cache that came back.
        delta: compressed - baseline.
        delta_percent: 100 delta / baseline.
        compression_ratio: Against 16-bit values, whole files.
        rmse: Root mean squared error over all values of all windows.
        snr_db: Signal-to-noise ratio over the same, in dB; inf when exact.
        cosine_similarity: Mean over windows.
        passed: Whether the delta is below the threshold.
        threshold: Largest acceptable delta.
        delta_error: Standard error of the delta.
        kl: Mean KL divergence of next-token distributions, nats per token.
        kl_error: Its standard error.
        top1: Share of positions with the same most likely token.
        top1_error: Its standard error.
        windows: Number of windows of text.
        tensors: Number of tensors compressed.
        tensors_failed: Number of them outside the usual thresholds of RMSE, error, SNR, cosine.
        bits_per_value: Bits of the whole files for each value.
        codec: Codec, and preset after a colon.
        layer_snr_db: SNR in dB by tensor, mean over windows; nan where exact.
    """

    baseline_perplexity: float
    compressed_perplexity: float
    delta: float
    delta_percent: float
    compression_ratio: float
    rmse: float
    snr_db: float
    cosine_similarity: float
    passed: bool
    threshold: float = PERPLEXITY_THRESHOLD
    delta_error: float = math.nan
    kl: float = math.nan
    kl_error: float = math.nan
    top1: float = math.nan
    top1_error: float = math.nan
    windows: int = 0
    tensors: int = 0
    tensors_failed: int = 0
    bits_per_value: float = math.nan
    codec: str = "int4"
    layer_snr_db: dict[str, float] = field(default_factory=dict)

    @classmethod
    def from_outcome(cls, outcome: Outcome, codec: str, threshold: float) -> "ValidationResult":
        """Takes what a validation measured."""
        summary = outcome.summary
        delta = summary.delta_perplexity
        return cls(
            baseline_perplexity=summary.base_perplexity,
            compressed_perplexity=summary.perplexity,
            delta=delta.value,
            delta_percent=100 * delta.value / summary.base_perplexity,
            compression_ratio=outcome.compression_ratio,
            rmse=outcome.rmse,
            snr_db=outcome.snr_db,
            cosine_similarity=outcome.cosine_similarity,
            passed=delta.value < threshold,
            threshold=threshold,
            delta_error=delta.error,
            kl=summary.kl.value,
            kl_error=summary.kl.error,
            top1=summary.top1.value,
            top1_error=summary.top1.error,
            windows=summary.windows,
            tensors=outcome.tensors,
            tensors_failed=outcome.tensors_failed,
            bits_per_value=16 / outcome.compression_ratio,
            codec=codec,
            layer_snr_db=outcome.layer_snr_db,
        )

    @classmethod
    def from_metrics(cls, metrics: CompressionMetrics, codec: str) -> "ValidationResult":
        """Takes what was measured on a file, without a model: it is held to three thresholds."""
        passed = metrics.rmse < 0.1 and metrics.snr_db > 18 and metrics.cosine_similarity > 0.99
        return cls(
            baseline_perplexity=math.nan,
            compressed_perplexity=math.nan,
            delta=math.nan,
            delta_percent=math.nan,
            compression_ratio=metrics.compression_ratio,
            rmse=metrics.rmse,
            snr_db=metrics.snr_db,
            cosine_similarity=metrics.cosine_similarity,
            passed=passed,
            tensors=metrics.tensors,
            tensors_failed=metrics.tensors_failed,
            bits_per_value=16 / metrics.compression_ratio,
            codec=codec,
        )

    def __str__(self) -> str:
        """Gives the verdict and what it rests on, a line each; without what was not measured."""
        verdict = "PASSED" if self.passed else "FAILED"
        lines = [f"{self.codec}: {verdict}"]
        if not math.isnan(self.delta):
            lines += [
                f"  perplexity         {self.baseline_perplexity:.4f} -> "
                f"{self.compressed_perplexity:.4f}",
                f"  delta              {self.delta:+.4f} ({self.delta_percent:+.2f} %), "
                f"to be below {self.threshold:g}",
            ]
        lines += [
            f"  compression ratio  {self.compression_ratio:.2f}x",
            f"  RMSE               {self.rmse:.6f}",
            f"  SNR                {format_db(self.snr_db)}",
            f"  cosine similarity  {self.cosine_similarity:.6f}",
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Gives the fields as a dict that JSON can write; what is not finite becomes None."""

        def finite(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: finite(each) for key, each in value.items()}
            return None if isinstance(value, float) and not math.isfinite(value) else value

        return {key: finite(value) for key, value in asdict(self).items()}


def print_quick(metrics: CompressionMetrics) -> None:
    """Prints what was measured on one file."""
    print(f"    Compression ratio: {metrics.compression_ratio:.2f}x")
    print(f"    RMSE:              {metrics.rmse:.6f}")
    print(f"    SNR:               {format_db(metrics.snr_db)}")
    print(f"    Cosine similarity: {metrics.cosine_similarity:.6f}")
    print(f"    Outside:           {metrics.tensors_failed} of {metrics.tensors} tensors")


def print_result(result: ValidationResult) -> None:
    """Prints the result of a full validation for people."""
    percent = f"{result.delta_percent:+.2f}%"
    print(f"{LINE}\n  RESULTS ({result.codec})\n{LINE}")
    print(f"  Baseline Perplexity:   {result.baseline_perplexity:.4f}")
    print(f"  Compressed Perplexity: {result.compressed_perplexity:.4f}")
    print(f"  Delta:                 {result.delta:+.4f} ({percent}) ± {result.delta_error:.4f}")
    print(f"  Compression Ratio:     {result.compression_ratio:.2f}x")
    print("-" * 60)
    print(f"  RMSE:                  {result.rmse:.6f}")
    print(f"  SNR:                   {format_db(result.snr_db)}")
    print(f"  Cosine Similarity:     {result.cosine_similarity:.6f}")
    print(f"  KL Divergence:         {result.kl:.6f} ± {result.kl_error:.6f} nats/token")
    print(f"  Top-1 Agreement:       {result.top1:.2%} ± {result.top1_error:.2%}")
    print(f"  Outside Thresholds:    {result.tensors_failed} of {result.tensors} tensors")
    print(LINE)
    sign, verdict = ("<", "[OK] PASSED") if result.passed else (">=", "[X] FAILED")
    print(f"  {verdict}: Delta {result.delta:.4f} {sign} {result.threshold} threshold\n{LINE}")
