# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the validator found, and how it says so."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from compression_bridge import CompressionMetrics, format_db
from measure.defaults import PERPLEXITY_THRESHOLD
from measure.report import REFERENCE
from measure.scores import interval
from measure.validation import Outcome

LINE = "=" * 60
PASSED, FAILED, INCONCLUSIVE = "PASSED", "FAILED", "INCONCLUSIVE"
_COLUMNS = (
    "codec",
    "ratio",
    "KL, nats/token",
    "of int4's",
    "perplexity, 95 % interval",
    "top-1",
    "SNR",
    "in bounds",
    "verdict",
)


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
        passed: Whether the delta itself is below the threshold; `verdict` also asks how certain
            that is.
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
        delta_low: Lower end of the 95 % confidence interval of the delta: that of the mean change
            of the negative log-likelihood over windows, as perplexity from the baseline.
        delta_high: Its upper end.
        position_kl: KL divergence by position after the prefix, mean over windows.
        model: The model that was run; empty for none.
        text: What it read.
        real_sample: Of synthetic data: what the codec does to the real sample. Synthetic data
            flatters codecs, so no verdict on it stands alone.
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
    delta_low: float = math.nan
    delta_high: float = math.nan
    position_kl: list[float] = field(default_factory=list)
    model: str = ""
    text: str = ""
    real_sample: str = ""

    @property
    def verdict(self) -> str:
        """PASSED or FAILED; INCONCLUSIVE where the interval of the delta contains the threshold.

        One window has no interval, so that nothing but equal predictions can pass with it.
        Without windows no perplexity was measured, and `passed` decides.
        """
        if self.windows == 0 or (self.kl == 0 and self.delta == 0):
            return PASSED if self.passed else FAILED
        if self.delta_high < self.threshold:
            return PASSED
        return FAILED if self.delta_low >= self.threshold else INCONCLUSIVE

    @property
    def verdict_text(self) -> str:
        """The verdict, and of synthetic data what the real sample says."""
        if not self.real_sample:
            return self.verdict
        return f"{self.verdict} on synthetic data; real sample: {self.real_sample}"

    @classmethod
    def from_outcome(cls, outcome: Outcome, codec: str, threshold: float) -> "ValidationResult":
        """Takes what a validation measured."""
        summary = outcome.summary
        delta = summary.delta_perplexity
        # Windows differ in perplexity by far more than in how much of it is added, as a factor.
        low, high = (
            summary.base_perplexity * math.expm1(end)
            for end in interval(summary.delta_nll, summary.windows)
        )
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
            delta_low=low,
            delta_high=high,
            position_kl=list(outcome.position_kl),
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
            layer_snr_db={
                name: value if math.isfinite(value) else math.nan
                for name, value in metrics.tensor_snr_db.items()
            },
        )

    def __str__(self) -> str:
        """Returns the verdict and what it rests on, a line each; without what was not measured."""
        lines = [f"{self.codec}: {self.verdict_text}"]
        if not math.isnan(self.kl):
            lines.append(f"  KL divergence      {self.kl:.6f} nats/token")
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
        """Returns the fields as a dict that JSON can write; what is not finite becomes None."""

        def finite(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: finite(each) for key, each in value.items()}
            if isinstance(value, list):
                return [finite(each) for each in value]
            return None if isinstance(value, float) and not math.isfinite(value) else value

        fields = {key: finite(value) for key, value in asdict(self).items()}
        return {**fields, "verdict": self.verdict}

    def headline(self) -> str:
        """Returns the verdict and what it rests on in one line."""
        if math.isnan(self.kl):
            return f"{self.codec}: {self.verdict_text}"
        return (
            f"{self.codec}: {self.verdict}, KL {self.kl:.4g} nats/token, "
            f"perplexity {_delta(self)}, {self.compression_ratio:.2f}x"
        )


def snr_by_layer(tensors: Mapping[str, float], part: str) -> list[float]:
    """Returns the values of `key` or `value` tensors in the order of layers, not of names."""
    found = [(int(name.split("_")[1]), snr) for name, snr in tensors.items() if name.endswith(part)]
    return [snr for _, snr in sorted(found)]


def _delta(result: ValidationResult) -> str:
    """The rise of perplexity with its interval, as far as they are known."""
    if math.isnan(result.delta):
        return "not measured"
    if math.isnan(result.delta_low):
        return f"{result.delta:+.3f}"
    return f"{result.delta:+.3f} ({result.delta_low:+.3f} to {result.delta_high:+.3f})"


def _row(result: ValidationResult, reference: float) -> tuple[str, ...]:
    """What the columns name. `reference` is the KL divergence that shares are of, nan for none."""
    measured = not math.isnan(result.kl)
    inside = 1 - result.tensors_failed / result.tensors if result.tensors else math.nan
    return (
        result.codec,
        f"{result.compression_ratio:.2f}x",
        f"{result.kl:.5f} ± {result.kl_error:.5f}" if measured else "-",
        f"{result.kl / reference:.0%}" if measured and reference > 0 else "-",
        _delta(result) if measured else "-",
        f"{result.top1:.1%}" if measured else "-",
        format_db(result.snr_db),
        "-" if math.isnan(inside) else f"{inside:.0%}",
        result.verdict_text,
    )


def table(results: Sequence[ValidationResult]) -> list[tuple[str, ...]]:
    """Returns names of columns, then a row for each codec; columns without numbers are left out.

    Shares of int4's KL divergence need int4 among the codecs.
    """
    reference = next((each.kl for each in results if each.codec == REFERENCE), math.nan)
    rows = [_COLUMNS, *(_row(each, reference) for each in results)]
    shown = [
        column for column in zip(*rows, strict=True) if any(cell != "-" for cell in column[1:])
    ]
    return list(zip(*shown, strict=True))


def comparison(results: Sequence[ValidationResult]) -> str:
    """Returns the table of codecs as text, a line each."""
    rows = table(results)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        for cells in rows
    )


def sample_text(real: CompressionMetrics) -> str:
    """Describes what a codec does to the tensors of the real sample."""
    if not real.tensors_failed:
        return "within the thresholds"
    return f"{real.tensors_failed} of {real.tensors} tensors outside the thresholds"


def print_quick_test(
    result: ValidationResult, synthetic: CompressionMetrics, real: CompressionMetrics
) -> None:
    """Prints what the quick test measured on its two files, and the verdict on one of them."""
    print(f"{LINE}\n  KV Cache Compression Quick Test\n{LINE}")
    for title, metrics in (
        ("Synthetic, N(0, 0.3): 22 layers, 4 KV heads, 128 tokens", synthetic),
        ("Real, SmolLM2-135M reading 96 tokens", real),
    ):
        print(f"  {title}, {result.codec}")
        print_quick(metrics)
        print("-" * 60)
    mark = "[OK] PASSED" if result.passed else "[X] FAILED"
    if result.real_sample:
        print(f"  {mark} ON SYNTHETIC DATA, which flatters: RMSE < 0.1, SNR > 18 dB, cosine > 0.99")
        print(f"  Real sample: {result.real_sample}")
    else:
        print(f"  {mark}: Real sample: {sample_text(real)}")
    if real.tensors_failed:
        print("  auto is a codec that keeps every tensor within them: --codec auto")
    print(f"  No model was run: perplexity is not known\n{LINE}")


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
    print(f"  KL Divergence:         {result.kl:.6f} ± {result.kl_error:.6f} nats/token")
    print(f"  Baseline Perplexity:   {result.baseline_perplexity:.4f}")
    print(f"  Compressed Perplexity: {result.compressed_perplexity:.4f}")
    print(f"  Delta:                 {result.delta:+.4f} ({percent}) ± {result.delta_error:.4f}")
    print(f"  95 % Interval:         {result.delta_low:+.4f} to {result.delta_high:+.4f}")
    print(f"  Compression Ratio:     {result.compression_ratio:.2f}x")
    print("-" * 60)
    print(f"  RMSE:                  {result.rmse:.6f}")
    print(f"  SNR:                   {format_db(result.snr_db)}")
    print(f"  Cosine Similarity:     {result.cosine_similarity:.6f}")
    print(f"  Top-1 Agreement:       {result.top1:.2%} ± {result.top1_error:.2%}")
    print(f"  Outside Thresholds:    {result.tensors_failed} of {result.tensors} tensors")
    print(f"{LINE}\n  {_verdict_line(result)}\n  KL {result.kl:.4g} nats/token\n{LINE}")


def _verdict_line(result: ValidationResult) -> str:
    """The verdict, and why it is not more certain."""
    delta, threshold = f"Delta {result.delta:.4f}", f"{result.threshold} threshold"
    if result.verdict == PASSED:
        return f"[OK] PASSED: {delta} < {threshold}"
    if result.verdict == FAILED:
        return f"[X] FAILED: {delta} >= {threshold}"
    if result.windows < 2:
        return f"[?] INCONCLUSIVE: {delta} of one window has no interval; give a longer text"
    return (
        f"[?] INCONCLUSIVE: the interval of {delta} contains the {threshold};\n"
        f"  more than {result.windows} windows make it narrower: --windows"
    )
