# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Trains a profile from a model: caches, metric, basis, and presets by what the model notices.

Presets are placed by kinds of text that the basis was not trained on: each file is a kind, and is
measured with a basis of all else. Beside files, text that the model wrote is no kind of its own but
a sample of what the model knows, and held-out windows of it are measured with the basis of all.
Without files, each family of its beginnings is a kind. The step is that where the worst costs what
the preset may.
"""

import dataclasses
import functools
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore]
from safetensors.torch import save_file  # type: ignore[import-not-found,unused-ignore]

from kvcompress.profiles import _native, _own_text
from kvcompress.profiles._kinds import Kind, Tokens, folds_of, kinds_of_texts
from kvcompress.profiles._metric import (
    FLOOR,
    POWER,
    MetricFinder,
    check_halves,
    rotation_tensors,
)
from kvcompress.profiles._model import LanguageModel
from kvcompress.profiles._placement import (
    LADDER,
    SHARES,
    Judge,
    Measured,
    Shares,
    Window,
    find_step,
    limited,
    shares_of,
)
from kvcompress.profiles._report import Expectation, ProfileInfo, read_profile

# What text that the model wrote is called in reports.
OWN = "own"
# How often a step is made finer whose bound is above the share, and what is close to it.
_CORRECTIONS = 2
_CLOSE = 1.02
_NO_STEP = (
    "no step keeps the damage at {:.0%} of int4's; train on more windows, on more kinds of text, "
    "or with more components"
)


@dataclass(frozen=True)
class TrainingOptions:
    """How to train.

    Attributes:
        label: What the model is called.
        windows: Windows to train on, cut evenly out of all files.
        own: Windows to train on that the model writes itself; 0 for none.
        tokens: Of each.
        fed: Tokens behind these whose predictions are sampled, or scored.
        samples: Gradients for each window; 0 to train from caches alone.
        held_out: Windows to place presets on, of all files, and as many that the model writes.
        layers: About how many are transformed together, in groups of equal size; 0 for all.
        components: The most of a group.
        seed: For the sampling.
    """

    label: str
    windows: int = 18
    own: int = 30
    tokens: int = 1024
    fed: int = 160
    samples: int = 2
    held_out: int = 12
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


@dataclass(frozen=True)
class Collected:
    """What bases are trained on.

    Attributes:
        caches: Of windows.
        finder: What is known for the metric.
    """

    caches: list[Path]
    finder: MetricFinder


@dataclass(frozen=True)
class _Basis:
    """A profile whose presets are the steps to try, and what it was trained on."""

    profile: Path
    caches: list[Path]


@dataclass(frozen=True)
class _Fold:
    """The held-out windows of some kinds, and the basis that measures them."""

    judge: Judge
    basis: _Basis


class Trainer:
    """Trains one profile.

    Attributes:
        times: How long it took.
        losses: For each preset the signal-to-noise ratio of each tensor, in dB, on the texts that
            presets were placed on.
        shares: For each preset what it costs of int4's divergence, by kind of text, with the
            bases that presets were placed with.
    """

    def __init__(
        self, model: LanguageModel, options: TrainingOptions, say: Callable[[str], None]
    ) -> None:
        """Takes the model; progress goes to `say`, line by line.

        Raises:
            ValueError: A number is out of its range, or the model's rotation not supported.
        """
        if min(options.held_out, options.fed) < 1 or min(options.samples, options.own) < 0:
            raise ValueError("there must be windows to hold out, and tokens to feed")
        self._model = model
        self._options = options
        self._say = say
        self._rotations = model.rotations(options.tokens + options.fed)
        self.times = Times()
        self.losses: dict[str, Mapping[str, float]] = {}
        self.shares: dict[str, Shares] = {}

    def train(
        self, texts: Mapping[str, str], output: Path, work: Path | None = None
    ) -> ProfileInfo:
        """Trains on texts, and on what the model writes, and writes the profile.

        Args:
            texts: Texts by the names of their kinds; none to train on what the model writes.
            output: The profile.
            work: A folder for temporary files, of some 25 KB a token and million parameters.

        Raises:
            ValueError: There is no text, one is too short, the model turns keys in a way not
                supported, or no step keeps the damage of any preset.
            NativeError: kv-compress is missing or fails.
        """
        files, own = self._kinds(texts)
        with tempfile.TemporaryDirectory(dir=work) as name:
            folder = Path(name)
            groups = [*folds_of(files), own] if files and own else folds_of(files or own)
            parts, judges = [], []
            for i, group in enumerate(groups):
                place = folder / f"fold_{i}"
                place.mkdir()
                training = [window for kind in group for window in kind.training]
                parts.append(self.collect(training, place))
                judges.append(self._hold_out(group, place))
            basis = self._find_basis(parts, folder / "basis.profile")
            folds = []
            for i, (group, judge) in enumerate(zip(groups, judges, strict=True)):
                others = [
                    part for place, part in enumerate(parts) if place != i and group is not own
                ]
                other = (
                    self._find_basis(others, folder / f"without_{i}.profile") if others else basis
                )
                folds.append(_Fold(judge, other))
            self._place(basis, folds, output)
        return read_profile(output)

    def _kinds(self, texts: Mapping[str, str]) -> tuple[list[Kind], list[Kind]]:
        """Cuts windows out of texts, and lets the model write more.

        Returns:
            A kind of each text, and one of each family that the model wrote.
        """
        options = self._options
        if options.windows < 1:
            texts = {}
        if not texts and options.own < 1:
            raise ValueError("there is no text to train on")
        first = self._model.first_tokens
        length = options.tokens + options.fed
        kinds = []
        if texts:
            tokens = {name: self._model.tokenize(text) for name, text in texts.items()}
            cut = kinds_of_texts(tokens, length - len(first), options.windows, options.held_out)
            for kind in cut:
                training, held_out = (
                    [first + window for window in windows]
                    for windows in (kind.training, kind.held_out)
                )
                kinds.append(Kind(kind.name, training, held_out))
        return kinds, self._write(length) if options.own > 0 else []

    def _write(self, length: int) -> list[Kind]:
        now = time.monotonic()
        options = self._options
        families = list(_own_text.STARTS)
        training, held_out = (
            {name: len(range(i, count, len(families))) for i, name in enumerate(families)}
            for count in (options.own, options.held_out)
        )
        counts = {name: training[name] + held_out[name] for name in families}
        texts = _own_text.write(self._model, counts, length, options.seed, self._say)
        self.times.measure("own text", now)
        return [
            Kind(OWN, texts[name][: training[name]], texts[name][training[name] :])
            for name in families
            if training[name] > 0
        ]

    def collect(self, windows: Sequence[Tokens], folder: Path) -> Collected:
        """Writes the caches of windows, and finds what the metric is made of."""
        options = self._options
        finder = MetricFinder(self._rotations)
        generator = torch.Generator().manual_seed(options.seed)
        caches: list[Path] = []
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
        return Collected(caches, finder)

    def write_metric(self, parts: Sequence[Collected], target: Path) -> None:
        """Writes the metric of all parts together, as -train-metric takes it."""
        finder = MetricFinder(self._rotations)
        for part in parts:
            finder.add(part.finder)
        save_file({**finder.metric(), **rotation_tensors(self._rotations)}, target)

    def _find_basis(self, parts: Sequence[Collected], target: Path) -> _Basis:
        """Trains a profile whose presets are the steps to try."""
        options = self._options
        now = time.monotonic()
        metric = None
        if options.samples > 0:
            metric = target.with_suffix(".metric")
            self.write_metric(parts, metric)
        caches = [cache for part in parts for cache in part.caches]
        how = f"fisher samples={options.samples} power={POWER} floor={FLOOR} " if metric else ""
        _native.train(
            target,
            options.label,
            caches,
            presets=[(f"step-{i}", step, None) for i, step in enumerate(LADDER)],
            metric=metric,
            layers=options.layers,
            components=options.components,
            note=f"{how}windows={options.windows}x{options.tokens} own={options.own} "
            f"seed={options.seed} held-out={options.held_out}",
        )
        self.times.measure("bases", now)
        self._say(f"a basis of {len(caches)} windows is found")
        return _Basis(target, caches)

    def _hold_out(self, kinds: Sequence[Kind], folder: Path) -> Judge:
        now = time.monotonic()
        windows: list[Window] = []
        for kind in kinds:
            for tokens in kind.held_out:
                cache = self._model.prefill(tokens[: self._options.tokens])
                fed = tuple(tokens[self._options.tokens :])
                source = folder / f"held_out_{len(windows)}.safetensors"
                _native.write_cache(cache, source)
                with torch.no_grad():
                    base = self._model.predict(cache, fed)
                windows.append(Window(source, fed, base, kind.name))
        self.times.measure("held-out caches", now)
        return Judge(self._model, windows)

    def _place(self, basis: _Basis, folds: Sequence[_Fold], output: Path) -> None:
        """Finds the steps of the presets, measures these, and writes the profile."""
        now = time.monotonic()
        judge = Judge(self._model, [each for fold in folds for each in fold.judge.windows])
        measured = judge.measure(["-codec", "int4"])
        int4 = dataclasses.replace(measured, divergences=limited(measured.divergences))
        self._say(f"int4: ratio {int4.ratio:.2f}, divergence {int4.divergence:.5f}")

        def shares_at(step: float) -> Shares:
            changed = [each for fold in folds for each in self._try(fold, step).divergences]
            shares = shares_of(judge.windows, changed, int4.divergences)
            listed = ", ".join(f"{kind} {share:.0%}" for kind, share in shares.by_kind.items())
            self._say(f"step {step:.2f}: {listed} of int4's divergence; at most {shares.most:.0%}")
            return shares

        @functools.cache
        def most_at(index: int) -> float:
            return shares_at(LADDER[index]).most

        steps = {}
        for name, share in SHARES.items():
            if most_at(0) > share:
                self._say(f"{name} is left out: {_NO_STEP.format(share)}")
                continue
            steps[name] = find_step(share, LADDER, most_at)
            self.shares[name] = shares_at(steps[name])
            for _ in range(_CORRECTIONS):
                if self.shares[name].most <= share * _CLOSE:
                    break
                # Bounds grow about as steps do.
                steps[name] *= share / self.shares[name].most
                self.shares[name] = shares_at(steps[name])
        now = self.times.measure("placing", now)
        if not steps:
            raise ValueError(f"no preset can be kept: {_NO_STEP.format(max(SHARES.values()))}")
        placed = basis.profile.with_name("placed.profile")
        self._write_presets(basis, placed, [(name, step, None) for name, step in steps.items()])
        now = self.times.measure("tables", now)
        presets: list[tuple[str, float, Expectation | None]] = []
        for name, step in steps.items():
            found = judge.measure(["-codec", f"klt:{name}"], placed)
            self.losses[name] = found.snr_db
            seen = shares_of(judge.windows, found.divergences, int4.divergences)
            expected = Expectation(
                found.ratio,
                found.divergence,
                int4.divergence,
                seen.least,
                max(seen.most, self.shares[name].most),
            )
            presets.append((name, step, expected))
            self._say(
                f"{name}: step {step:.3f}, ratio {found.ratio:.1f}, {expected.least_share:.0%} to "
                f"{expected.most_share:.0%} of int4's divergence"
            )
        self._write_presets(_Basis(placed, basis.caches), output, presets)
        self.times.measure("expectations", now)

    def _try(self, fold: _Fold, step: float) -> Measured:
        """Measures a step on the windows of a fold."""
        trial = fold.basis.profile.with_name("trial.profile")
        self._write_presets(fold.basis, trial, [("ultra", step, None)])
        return fold.judge.measure(["-codec", "klt:ultra"], trial)

    def _write_presets(
        self,
        basis: _Basis,
        target: Path,
        presets: Sequence[tuple[str, float, Expectation | None]],
    ) -> None:
        """Writes a profile with the basis of another and its own presets."""
        _native.train(
            target, self._options.label, basis.caches, presets=presets, basis=basis.profile
        )
