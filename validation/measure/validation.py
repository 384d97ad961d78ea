# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The six steps of the perplexity validator. Imports torch only when a model is at hand."""

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from tqdm import tqdm

import kv_cache_utils
from compression_bridge import CompressionMetrics, compress_kv_cache, format_db
from measure.scores import Summary, WindowScore, summarize

_SHORTEST = 16  # tokens of text with which anything can be said

Say = Callable[[str], None]


class TextNotFoundError(OSError):
    """A text that is neither on this machine nor within reach; the message says what to do."""


@dataclass(frozen=True)
class Outcome:
    """What a codec did to all windows.

    Attributes:
        summary: What the model noticed.
        compression_ratio: Against 16-bit values, whole files.
        rmse: Over all values of all windows.
        snr_db: Over all values of all windows; inf when exact.
        cosine_similarity: Mean over windows.
        tensors: Number of tensors.
        tensors_failed: Number of them outside the usual thresholds.
        layer_snr_db: Mean over windows by tensor; nan where exact.
        position_kl: KL divergence by position after the prefix, mean over windows.
    """

    summary: Summary
    compression_ratio: float
    rmse: float
    snr_db: float
    cosine_similarity: float
    tensors: int
    tensors_failed: int
    layer_snr_db: dict[str, float]
    position_kl: Sequence[float] = ()


def load_dataset_text(name: str, config: str | None, split: str) -> str:
    """Returns the text of a data set of the Hugging Face hub, paragraphs apart.

    Raises:
        TextNotFoundError: It is not in the local cache and cannot be reached.
    """
    how = "Give --text a file of plain text"
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise TextNotFoundError(f"{name} needs the package datasets. {how}") from error
    try:
        rows = load_dataset(name, config, split=split)
    except Exception as error:  # datasets and the hub raise of many kinds, all with this cause
        raise TextNotFoundError(
            f"the data set {name} is neither in the local cache nor can the Hugging Face hub be "
            f"reached. {how}"
        ) from error
    return "\n\n".join(rows["text"])


def load_text(source: str) -> str:
    """Returns the text of a file, or of a data set as NAME[:CONFIG[:SPLIT]].

    Raises:
        TextNotFoundError: There is no such text.
        ValueError: The file is not UTF-8, or the text is blank: a model has something to say of
            spaces and line breaks too, and nothing that reveals a codec.
    """
    text = _read(source)
    if not text.strip():
        raise ValueError(f"the text {source} is blank: give --text a file of plain text")
    return text


def _read(source: str) -> str:
    """Returns the text as it is."""
    if Path(source).is_file():
        return Path(source).read_text(encoding="utf-8")
    if Path(source).suffix or source.startswith((".", "/")):
        raise TextNotFoundError(f"no such text file: {source}")
    name, config, split = (*source.split(":"), "", "")[:3]
    return load_dataset_text(name, config or None, split or "test")


def fit(available: int, windows: int, prefix: int, continuation: int) -> tuple[int, int, int]:
    """Returns windows, prefix and continuation that a text of so many tokens is enough for.

    Fewer windows first; then one shorter window, a quarter of it scored.

    Raises:
        ValueError: The text is too short for anything.
    """
    length = prefix + continuation + 1
    if available >= length:
        return min(windows, available // length), prefix, continuation
    if available < _SHORTEST:
        raise ValueError(f"the text has {available} tokens; {_SHORTEST} are the least")
    prefix = available * 3 // 4
    return 1, prefix, available - prefix - 1


def sliding_perplexity(
    model: Any, tokenizer: Any, text: str, stride: int, max_windows: int | None, verbose: bool
) -> float:
    """Returns the perplexity of a text by a sliding window, as compute_perplexity says.

    The window is twice the stride or what the model can read, whichever is less.

    Raises:
        ValueError: The text has fewer than two tokens.
    """
    import torch

    ids = tokenizer(text, return_tensors="pt")["input_ids"].to(model.device)
    length = ids.shape[1]
    if length < 2:
        raise ValueError(f"the text has {length} tokens; 2 are the least")
    longest = int(getattr(model.config, "max_position_embeddings", 0) or 2 * stride)
    size = min(2 * stride, longest)
    begins = list(range(0, length - 1, stride))[:max_windows]
    total, scored, end_before = 0.0, 0, 0
    for begin in tqdm(begins, desc="perplexity", disable=None if verbose else True):
        end = min(begin + size, length)
        window = ids[:, begin:end]
        labels = window.clone()
        labels[:, : max(end_before - begin, 0)] = -100  # context alone, or scored before
        count = int((labels[:, 1:] != -100).sum())
        if count:
            with torch.inference_mode():
                total += float(model(window, labels=labels).loss) * count
            scored += count
        end_before = end
        if end == length:
            break
    return math.exp(total / scored)


class Validation:
    """A model, windows of text, and the model's own caches of their prefixes. A context."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        text: str,
        size: tuple[int, int, int],
        verbose: bool,
    ) -> None:
        """Cuts the windows.

        Args:
            model: A causal language model.
            tokenizer: Its tokenizer.
            text: What to read.
            size: Most windows, tokens of their prefixes, tokens scored after them.
            verbose: Whether to show progress bars on a terminal.

        Raises:
            ValueError: The text is too short.
        """
        from measure import injection

        tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
        windows, self._prefix, continuation = fit(len(tokens), *size)
        self._windows = injection.spread(tokens, self._prefix + continuation + 1, windows)
        self._model = model
        self._verbose = verbose
        self._base: list[Any] = []
        self._folder = tempfile.TemporaryDirectory(prefix="kvcompress-")

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Removes the files."""
        self._folder.cleanup()

    def generate(self, say: Say) -> tuple[int, int, int]:
        """Steps 2 and 3: the model's own caches, and what it predicts with them.

        Returns:
            Number of layers, of KV heads, and of tokens scored.
        """
        from measure import injection

        say("[2/6] Generating KV cache...")
        for index, window in enumerate(self._progress("prefix")):
            prefix, _, _ = injection.split(window, self._prefix)
            cache = injection.prefill(self._model, prefix)
            metadata = kv_cache_utils.save_kv_cache(cache, self._file(index))
            stats = kv_cache_utils.compute_kv_cache_stats(cache)
        count = len(self._windows)
        say(
            f"    Generated: {metadata.num_layers} layers, {count} x {metadata.seq_len} tokens, "
            f"{count * stats['total_mb']:.2f} MB"
        )
        say("[3/6] Computing baseline perplexity...")
        scores = []
        for index, window in enumerate(self._progress("baseline")):
            _, fed, targets = injection.split(window, self._prefix)
            own, _ = kv_cache_utils.load_kv_cache(self._file(index))
            caches = [injection.to_tensors(own)]
            base = injection.continue_with(self._model, caches, fed)[0]
            self._base.append(base)
            scores.append(injection.compare(base, base, targets))
        say(f"    Baseline perplexity: {summarize(scores).base_perplexity:.4f}")
        return metadata.num_layers, metadata.num_kv_heads, sum(each.tokens for each in scores)

    def check(self, codec: str, say: Say) -> Outcome:
        """Steps 4 to 6: compresses every cache, loads what comes back, goes on with it.

        Args:
            codec: A codec string, such as klt:ultra.
            say: Told of the steps.

        Raises:
            compression_bridge.CompressionError: The service failed.
        """
        from measure import injection

        theta = injection.rope_theta(self._model)
        say(f"[4/6] Compressing KV cache ({codec})...")
        metrics = [
            compress_kv_cache(
                self._file(index),
                self._file(index, "compressed"),
                codec=codec,
                rope_theta=theta,
            )
            for index, _ in enumerate(self._progress("compress"))
        ]
        pooled = _pool(metrics)
        say(f"    Compression ratio: {pooled['compression_ratio']:.2f}x")
        say(f"    RMSE: {pooled['rmse']:.6f}")
        say(f"    SNR: {format_db(pooled['snr_db'])}")
        say("[5/6] Loading reconstructed KV cache...")
        caches = [
            injection.to_tensors(kv_cache_utils.load_kv_cache(self._file(index, "compressed"))[0])
            for index, _ in enumerate(self._progress("load"))
        ]
        say("[6/6] Computing perplexity with compressed KV cache...")
        scores: list[WindowScore] = []
        positions: list[list[float]] = []
        for index, window in enumerate(self._progress("compressed")):
            _, fed, targets = injection.split(window, self._prefix)
            changed = injection.continue_with(self._model, [caches[index]], fed)[0]
            scores.append(injection.compare(self._base[index], changed, targets))
            positions.append(injection.kl_by_position(self._base[index], changed).tolist())
        summary = summarize(scores)
        say(f"    Compressed perplexity: {summary.perplexity:.4f}")
        return Outcome(
            summary=summary,
            tensors=sum(each.tensors for each in metrics),
            tensors_failed=sum(each.tensors_failed for each in metrics),
            layer_snr_db={
                tensor: _mean_db([each.tensor_snr_db[tensor] for each in metrics])
                for tensor in metrics[0].tensor_snr_db
            },
            position_kl=[float(np.mean(each)) for each in zip(*positions, strict=True)],
            **pooled,
        )

    def _file(self, index: int, kind: str = "cache") -> str:
        return str(Path(self._folder.name) / f"{kind}-{index}.safetensors")

    def _progress(self, what: str) -> Any:
        """The windows, with a bar on a terminal."""
        return tqdm(self._windows, desc=what, leave=False, disable=None if self._verbose else True)


def _mean_db(values: Sequence[float]) -> float:
    """Returns the mean; nan if a value is infinite."""
    mean = float(np.mean(values))
    return mean if math.isfinite(mean) else math.nan


def _pool(metrics: Sequence[CompressionMetrics]) -> dict[str, float]:
    """Pools windows of the same size: sizes and squared errors add up."""
    # The ratio counts 2 bytes for each value; that times the size is twice their number.
    values = sum(each.compression_ratio * each.compressed_size_bytes for each in metrics)
    squares = [each.rmse**2 for each in metrics]
    signals = [
        each.rmse**2 * 10 ** (each.snr_db / 10) for each in metrics if math.isfinite(each.snr_db)
    ]
    mean = sum(squares) / len(squares)
    return {
        "compression_ratio": values / sum(each.compressed_size_bytes for each in metrics),
        "rmse": math.sqrt(mean),
        "snr_db": 10 * math.log10(sum(signals) / len(signals) / mean) if mean else math.inf,
        "cosine_similarity": float(np.mean([each.cosine_similarity for each in metrics])),
    }
