# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Trains a profile from a model: caches, metric, basis, and presets by what the model notices."""

import functools
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore]
from safetensors.torch import save_file  # type: ignore[import-not-found,unused-ignore]

from kvcompress.profiles import _native
from kvcompress.profiles._metric import (
    FLOOR,
    POWER,
    MetricFinder,
    check_halves,
    rotation_tensors,
)
from kvcompress.profiles._model import LanguageModel
from kvcompress.profiles._placement import LADDER, SHARES, Judge, Window, find_step
from kvcompress.profiles._report import Expectation, ProfileInfo, read_profile

# The part of each text, at its end, that presets are placed on and nothing is trained on.
_HELD_OUT = 0.2


@dataclass(frozen=True)
class TrainingOptions:
    """How to train.

    Attributes:
        label: What the model is called.
        windows: Texts to train on, cut evenly out of all files.
        tokens: Of each.
        fed: Tokens behind these whose predictions are sampled, or scored.
        samples: Gradients for each window; 0 to train from caches alone.
        held_out: Texts to place presets on.
        layers: About how many are transformed together, in groups of equal size; 0 for all.
        components: The most of a group.
        seed: For the sampling.
    """

    label: str
    windows: int = 18
    tokens: int = 1024
    fed: int = 160
    samples: int = 2
    held_out: int = 6
    layers: int = 10
    components: int = 1024
    seed: int = 0


@dataclass
class Times:
    """Seconds that the parts of a training took."""

    parts: dict[str, float] = field(default_factory=dict)

    def measure(self, name: str, since: float) -> float:
        """Adds the time since then to a part and returns the time now."""
        now = time.monotonic()
        self.parts[name] = self.parts.get(name, 0.0) + now - since
        return now


def cut(
    texts: Sequence[Sequence[int]], length: int, count: int, *, held_out: bool
) -> list[list[int]]:
    """Cuts windows out of texts in turns, evenly spread over each.

    Args:
        texts: Tokens of each text.
        length: Tokens of a window.
        count: Windows in all.
        held_out: Out of the last fifth of each text; else out of the rest.

    Raises:
        ValueError: A text is too short.
    """
    windows = []
    for i in range(count):
        text = texts[i % len(texts)]
        cut = math.floor(len(text) * (1 - _HELD_OUT))
        begin, end = (cut, len(text)) if held_out else (0, cut)
        of_text = len(range(i % len(texts), count, len(texts)))
        room = end - begin - length
        if room < 0:
            raise ValueError(
                f"text {i % len(texts) + 1} has {len(text)} tokens, too few: a window has "
                f"{length}, and the last fifth of each text is held out"
            )
        first = begin + math.floor(room * (i // len(texts) + 0.5) / of_text)
        windows.append(list(text[first : first + length]))
    return windows


class Trainer:
    """Trains one profile.

    Attributes:
        times: How long it took.
        losses: For each preset the signal-to-noise ratio of each tensor, in dB, on the texts that
            presets were placed on.
    """

    def __init__(
        self, model: LanguageModel, options: TrainingOptions, say: Callable[[str], None]
    ) -> None:
        """Takes the model; progress goes to `say`, line by line.

        Raises:
            ValueError: A number is out of its range, or the model's rotation not supported.
        """
        if min(options.windows, options.held_out, options.fed) < 1 or options.samples < 0:
            raise ValueError("there must be windows to train on, to hold out, and tokens to feed")
        self._model = model
        self._options = options
        self._say = say
        self._rotations = model.rotations(options.tokens + options.fed)
        self.times = Times()
        self.losses: dict[str, Mapping[str, float]] = {}

    def train(self, texts: Sequence[str], output: Path, work: Path | None = None) -> ProfileInfo:
        """Trains on texts and writes the profile.

        Args:
            texts: The texts.
            output: The profile.
            work: A folder for temporary files, of some 25 KB a token and million parameters.

        Raises:
            ValueError: A text is too short, or the model turns keys in a way not supported.
            NativeError: kv-compress is missing or fails.
        """
        options = self._options
        tokens = [self._model.tokenize(text) for text in texts]
        first = self._model.first_tokens
        length = options.tokens + options.fed - len(first)
        training, held_out = (
            [first + window for window in cut(tokens, length, count, held_out=held)]
            for count, held in ((options.windows, False), (options.held_out, True))
        )
        with tempfile.TemporaryDirectory(dir=work) as name:
            folder = Path(name)
            caches, metric = self.collect(training, folder)
            basis = self._find_basis(caches, metric, folder)
            self._place(basis, caches, self._hold_out(held_out, folder), output)
        return read_profile(output)

    def collect(self, windows: list[list[int]], folder: Path) -> tuple[list[Path], Path | None]:
        """Writes the caches of windows, and the metric where there are gradients."""
        options = self._options
        finder = MetricFinder(self._rotations)
        generator = torch.Generator().manual_seed(options.seed)
        caches = []
        for i, window in enumerate(windows):
            now = time.monotonic()
            cache = self._model.prefill(window[: options.tokens])
            caches.append(folder / f"training_{i}.safetensors")
            _native.write_cache(cache, caches[-1])
            now = self.times.measure("caches", now)
            if options.samples > 0:
                if i == 0:
                    check_halves(cache, self._rotations)
                finder.add_cache(cache)
                fed = window[options.tokens :]
                for each in self._model.gradients(cache, fed, options.samples, generator):
                    finder.add_gradients(each)
            self.times.measure("gradients", now)
            self._say(f"window {i + 1} of {len(windows)}")
        if options.samples == 0:
            return caches, None
        metric = folder / "metric.safetensors"
        save_file({**finder.metric(), **rotation_tensors(self._rotations)}, metric)
        return caches, metric

    def _find_basis(self, caches: list[Path], metric: Path | None, folder: Path) -> Path:
        """Trains a profile whose presets are the steps to try."""
        options = self._options
        now = time.monotonic()
        basis = folder / "basis.profile"
        how = f"fisher samples={options.samples} power={POWER} floor={FLOOR} " if metric else ""
        _native.train(
            basis,
            options.label,
            caches,
            presets=[(f"step-{i}", step, None) for i, step in enumerate(LADDER)],
            metric=metric,
            layers=options.layers,
            components=options.components,
            note=f"{how}windows={options.windows}x{options.tokens} seed={options.seed} "
            f"held-out={options.held_out}",
        )
        self.times.measure("basis", now)
        self._say("the basis is found")
        return basis

    def _hold_out(self, windows: list[list[int]], folder: Path) -> Judge:
        now = time.monotonic()
        cut_windows = []
        for i, window in enumerate(windows):
            cache = self._model.prefill(window[: self._options.tokens])
            fed = tuple(window[self._options.tokens :])
            source = folder / f"held_out_{i}.safetensors"
            _native.write_cache(cache, source)
            with torch.no_grad():
                cut_windows.append(Window(source, fed, self._model.predict(cache, fed)))
        self.times.measure("held-out caches", now)
        return Judge(self._model, cut_windows)

    def _place(self, basis: Path, caches: list[Path], judge: Judge, output: Path) -> None:
        """Finds the steps of the presets, measures these, and writes the profile."""
        now = time.monotonic()
        int4 = judge.measure(["-codec", "int4"])
        self._say(f"int4: ratio {int4.ratio:.2f}, divergence {int4.divergence:.5f}")

        @functools.cache
        def divergence_of(index: int) -> float:
            trial = basis.with_name("trial.profile")
            presets = [("ultra", LADDER[index], None)]
            _native.train(trial, self._options.label, caches, presets=presets, basis=basis)
            found = judge.measure(["-codec", "klt:ultra"], trial)
            self._say(
                f"step {LADDER[index]:.2f}: ratio {found.ratio:.1f}, "
                f"divergence {found.divergence / int4.divergence:.0%} of int4's"
            )
            return found.divergence

        steps = {
            name: find_step(share * int4.divergence, LADDER, divergence_of)
            for name, share in SHARES.items()
        }
        now = self.times.measure("placing", now)
        placed = basis.with_name("placed.profile")
        presets: list[tuple[str, float, Expectation | None]]
        presets = [(name, step, None) for name, step in steps.items()]
        _native.train(placed, self._options.label, caches, presets=presets, basis=basis)
        now = self.times.measure("tables", now)
        presets = []
        for name, step in steps.items():
            found = judge.measure(["-codec", f"klt:{name}"], placed)
            self.losses[name] = found.snr_db
            expected = Expectation(found.ratio, found.divergence, int4.divergence)
            presets.append((name, step, expected))
            self._say(
                f"{name}: step {step:.3f}, ratio {found.ratio:.1f}, "
                f"divergence {found.divergence / int4.divergence:.0%} of int4's"
            )
        _native.train(output, self._options.label, caches, presets=presets, basis=placed)
        self.times.measure("expectations", now)
