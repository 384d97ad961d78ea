# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The study's run: windows of text, the model's caches of them, and every row on every window.

What the model makes of a text is kept between runs, under a digest of all that it depends on;
so are the scores, under a digest of the very cache that was injected. A codec whose bytes
changed is thus always run again, and one whose decoded values did not change is not.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from measure import injection
from measure.distortion import distortion
from measure.injection import Cache
from measure.models import packaged
from measure.rows import Row
from measure.scores import Measurement, WindowScore
from measure.texts import TEXTS

BATCH = 4
"""Rows that go through the model together: larger products, more memory."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Setting:
    """What is measured on.

    Attributes:
        model: Name as for injection.load.
        windows: Number of windows, spread over the texts in turn.
        prefix: Tokens whose cache is compressed.
        continuation: Tokens scored after them.
    """

    model: str = "smollm2"
    windows: int = 12
    prefix: int = 1024
    continuation: int = 128


@dataclass(frozen=True)
class Window:
    """A window of text.

    Attributes:
        text: Name of the text.
        tokens: prefix + continuation + 1 token ids.
    """

    text: str
    tokens: list[int]


def digest(*parts: object) -> str:
    """Returns a key for what depends on these parts, which JSON can write."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def digest_of(cache: Cache) -> str:
    """Returns a digest of a cache's names and bits."""
    state = hashlib.sha256()
    for name, tensor in sorted(cache.items()):
        state.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        state.update(tensor.contiguous().view(torch.uint8).numpy().data)
    return state.hexdigest()[:32]


class Study:
    """Runs rows on windows. Not thread safe."""

    def __init__(self, setting: Setting, folder: Path, say: Say) -> None:
        """Prepares a study.

        Args:
            setting: What is measured on.
            folder: Where results are kept between runs.
            say: Told of progress.
        """
        self.setting = setting
        self._say = say
        carried = packaged(setting.model)
        model = "" if carried is None else carried.software
        packages = [f"{name} {version(name)}" for name in ("torch", "transformers")]
        texts = [[text.name, text.sha256] for text in TEXTS]
        self.key = digest(asdict(setting), model, packages, texts)
        self._folder = folder / f"study-{self.key}"
        self._folder.mkdir(parents=True, exist_ok=True)

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        self._say(f"loading {self.setting.model}")
        return injection.load(self.setting.model)

    @property
    def model(self) -> Any:
        """The model, loaded when it is first asked for."""
        return self._loaded[0]

    @cached_property
    def windows(self) -> list[Window]:
        """The windows, cut once and then kept."""
        path = self._folder / "windows.json"
        if not path.exists():
            path.write_text(json.dumps([asdict(window) for window in self._cut()]))
        return [Window(**window) for window in json.loads(path.read_text())]

    def _cut(self) -> Iterator[Window]:
        setting, tokenizer = self.setting, self._loaded[1]
        start = injection.first_tokens(tokenizer)
        length = setting.prefix + setting.continuation + 1 - len(start)
        for i, text in enumerate(TEXTS):
            count = (setting.windows - i + len(TEXTS) - 1) // len(TEXTS)
            if count < 1:
                continue
            tokens = tokenizer(text.read(), add_special_tokens=False)["input_ids"]
            for window in injection.spread(tokens, length, count):
                yield Window(text.name, start + window)

    def cache_file(self, index: int) -> Path:
        """Returns the file with the model's cache of a window's prefix, in BF16."""
        path = self._folder / f"window-{index:02d}.safetensors"
        if not path.exists():
            prefix, _, _ = injection.split(self.windows[index].tokens, self.setting.prefix)
            cache = injection.prefill(self.model, prefix)
            theta = injection.rope_theta(self.model)
            metadata = {} if theta is None else {"rope_theta": str(theta)}
            unfinished = path.with_suffix(".part")
            save_file(injection.to_tensors(cache, torch.bfloat16), unfinished, metadata)
            unfinished.replace(path)
        return path

    def run(self, rows: Sequence[Row]) -> dict[str, list[Measurement]]:
        """Measures rows on every window; returns the measurements by the row's name."""
        results: dict[str, list[Measurement]] = {row.name: [] for row in rows}
        for index, window in enumerate(self.windows):
            path = self.cache_file(index)
            source = load_file(path)
            on_window = _OnWindow(self, index, source)
            for row in rows:
                on_window.add(row, path)
            for name, measurement in on_window.finish():
                results[name].append(measurement)
            kl = {name: f"{each[-1].score.kl:.4f}" for name, each in results.items()}
            self._say(f"window {index + 1} of {len(self.windows)}, {window.text}: KL {kl}")
        return results

    def score(self, index: int, caches: Sequence[Cache]) -> list[WindowScore]:
        """Continues the model from its own cache of a window's prefix (BF16) and from others.

        Returns:
            The score of its own cache against itself, then those of the others against it.
        """
        _, fed, targets = injection.split(self.windows[index].tokens, self.setting.prefix)
        own = load_file(self.cache_file(index))
        base = injection.continue_with(self.model, [own], fed)[0]
        scores = [injection.compare(base, base, targets)]
        for start in range(0, len(caches), BATCH):
            batch = injection.continue_with(self.model, caches[start : start + BATCH], fed)
            scores += [injection.compare(base, changed, targets) for changed in batch]
        return scores

    def kept(self, key: str) -> Any:
        """Returns what an earlier run kept under a key, else None."""
        path = self._folder / f"{key}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def keep(self, key: str, value: Any) -> None:
        """Keeps a value for later runs."""
        path = self._folder / f"{key}.json"
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(value))
        unfinished.replace(path)


class _OnWindow:
    """The rows of one window: coded one by one, scored together."""

    def __init__(self, study: Study, index: int, source: Cache) -> None:
        self._study = study
        self._index = index
        self._source = source
        self._digest = digest_of(source)
        self._coded: list[tuple[str, dict[str, Any]]] = []  # name and what is known but the score
        self._pending: dict[str, Cache] = {}  # decoded caches without a score, by their digest

    def add(self, row: Row, path: Path) -> None:
        """Codes the cache and measures what it lost, unless an earlier run did."""
        key = digest(row.name, row.version, self._digest)
        facts = self._study.kept(key) if row.fixed else None
        if facts is None or self._study.kept(facts["decoded"]) is None:
            coded = row.code(path, self._source)
            decoded = digest_of(coded.cache)
            lost = distortion(self._source, coded.cache)
            facts = {"bytes": coded.bytes, "elements": coded.elements, "decoded": decoded}
            facts |= {"tensors": lost.tensors, "passed": lost.passed}
            facts |= {"rmse": lost.rmse, "snr_db": None if lost.rmse == 0 else lost.snr_db}
            if row.fixed:
                self._study.keep(key, facts)
            if self._study.kept(decoded) is None:
                self._pending[decoded] = coded.cache
        self._coded.append((row.name, facts))

    def finish(self) -> Iterator[tuple[str, Measurement]]:
        """Scores what has no score yet; returns every row's measurement."""
        if self._pending:
            self._pending.pop(self._digest, None)  # exact: that is the first score, always
            scores = self._study.score(self._index, list(self._pending.values()))
            for decoded, score in zip([self._digest, *self._pending], scores, strict=True):
                self._study.keep(decoded, asdict(score))
        for name, facts in self._coded:
            score = WindowScore(**self._study.kept(facts.pop("decoded")))
            facts["snr_db"] = math.inf if facts["snr_db"] is None else facts["snr_db"]
            text = self._study.windows[self._index].text
            yield name, Measurement(text=text, score=score, **facts)
