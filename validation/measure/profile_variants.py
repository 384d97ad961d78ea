# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Profiles that differ in one thing: how they are trained, or how much of them is kept.

Needs torch and transformers, and the native program.
"""

import dataclasses
import json
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kvcompress.profiles import _native, _own_text
from kvcompress.profiles._kinds import Tokens, cut
from kvcompress.profiles._model import LanguageModel
from kvcompress.profiles._placement import LADDER
from kvcompress.profiles._report import read_header
from kvcompress.profiles._training import Trainer, TrainingOptions

STEPS = LADDER[2:]
ALL_TEXTS = ""
MOST = 8192  # components of a group
_TYPES = {"U64": "<u8", "F32": "<f4", "I16": "<i2", "U8": "u1"}
_ALIGNMENT = 8

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Variant:
    """A profile to train.

    Attributes:
        name: For the table.
        text: The name of the only text that it is trained on; ALL_TEXTS for all.
        texts: How many of the texts it is trained on, the first; 0 for all.
        windows: Windows of 1,024 tokens of these that it is trained on.
        own: Windows that the model writes itself that it is trained on too.
        gradients: Whether the metric is that of gradients; else that of caches alone.
        layers: Of a group, 0 for all.
        components: The most of a group.
        bits: Of the numbers of the basis.
    """

    name: str
    text: str = ALL_TEXTS
    texts: int = 0
    windows: int = 18
    own: int = 0
    gradients: bool = True
    layers: int = 10
    components: int = 1024
    bits: int = 16


def change(
    source: Path, target: Path, edit: Callable[[str, Array], Array], presets: str | None = None
) -> None:
    """Writes a profile whose tensors are those of another, edited by name, and its presets."""
    data = source.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    written: dict[str, Any] = {"__metadata__": header.pop("__metadata__")}
    if presets is not None:
        written["__metadata__"]["kvcompress.profile.presets"] = presets
    parts, offset = [], 0
    for name, spec in header.items():
        begin, end = (8 + length + each for each in spec["data_offsets"])
        array = np.frombuffer(data[begin:end], _TYPES[spec["dtype"]]).reshape(spec["shape"])
        edited = np.ascontiguousarray(edit(name, array))
        parts.append(edited.tobytes())
        shape, offsets = list(edited.shape), [offset, offset + len(parts[-1])]
        written[name] = {"dtype": spec["dtype"], "shape": shape, "data_offsets": offsets}
        offset = offsets[1]
    text = json.dumps(written, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    target.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def at_step(source: Path, target: Path, step: int) -> None:
    """Writes a profile with one preset, `ultra`, at a step of STEPS."""
    header = read_header(source)
    names = header["__metadata__"]["kvcompress.profile.presets"].split(",")
    value = names[step].partition("=")[2]

    def edit(name: str, array: Array) -> Array:
        return array[step : step + 1] if name.endswith("classes") else array

    change(source, target, edit, presets=f"ultra={value}")


def keep(components: int) -> Callable[[str, Array], Array]:
    """Keeps the first components of each group."""

    def edit(name: str, array: Array) -> Array:
        if name.endswith(("decode", "encode")):
            return array[:components]
        return array[:, :components] if name.endswith("classes") else array

    return edit


def coarsen(bits: int) -> Callable[[str, Array], Array]:
    """Rounds each component's row of a basis to integers of so many bits and a scale of its own."""

    def edit(name: str, array: Array) -> Array:
        if not name.endswith(("decode", "encode")):
            return array
        rows = array.astype(np.float64)
        unit = np.abs(rows).max(1, keepdims=True) / (2 ** (bits - 1) - 1)
        unit[unit < 1] = 1
        coarse: Array = np.rint(np.rint(rows / unit) * unit).clip(-32767, 32767).astype("<i2")
        return coarse

    return edit


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Laboratory:
    """Trains variants. What is in its folder is not made again."""

    def __init__(
        self, model: LanguageModel, texts: Mapping[str, str], folder: Path, tokens: int
    ) -> None:
        """Takes the model, the texts by their names, a folder, and the tokens of a window."""
        self._model = model
        self._texts = {name: model.tokenize(text) for name, text in texts.items()}
        self._folder = folder
        self._tokens = tokens

    def profile(self, variant: Variant) -> Path:
        """Returns the profile, with a preset `step-I` for each of STEPS."""
        shape = f"{variant.layers}-{variant.components}-{variant.bits}"
        sets = "-and-".join(self._sets(variant))
        target = self._folder / f"{sets}-{variant.gradients:d}-{shape}.profile"
        if not target.exists():
            work = self._folder / "new.profile"
            self._make(variant, work)
            work.rename(target)
        return target

    def _make(self, variant: Variant, target: Path) -> None:
        if variant.bits < 16:
            coarse = self._folder / "coarse.profile"
            change(self.profile(Variant("")), coarse, coarsen(variant.bits))
            self._train(variant, target, basis=coarse)
        elif variant.layers == 10 and not variant.own and variant.components < MOST:
            # The leading components do not depend on how many are kept.
            whole = dataclasses.replace(variant, components=MOST)
            change(self.profile(whole), target, keep(variant.components))
        else:
            self._train(variant, target)

    def _train(self, variant: Variant, target: Path, basis: Path | None = None) -> None:
        caches, metric = self._collect(variant)
        # Classes are taken from a basis that has these steps, and they are not those of this one.
        factor = 1.0 if basis is None else 1.001
        _native.train(
            target,
            "variant",
            caches,
            presets=[(f"step-{i}", step * factor, None) for i, step in enumerate(STEPS)],
            metric=metric if variant.gradients else None,
            basis=basis,
            layers=variant.layers,
            components=variant.components,
        )

    def _sets(self, variant: Variant) -> dict[str, Callable[[int], list[Tokens]]]:
        """Returns the sets of windows of a variant, by their names, as functions of a length."""
        texts = list(self._texts.values())[: variant.texts or None]
        if variant.text:
            texts = [self._texts[variant.text]]
        first = self._model.first_tokens

        def of_texts(length: int) -> list[Tokens]:
            windows = cut(texts, length - len(first), variant.windows, held_out=False)
            return [first + window for window in windows]

        def written(length: int) -> list[Tokens]:
            families = list(_own_text.STARTS)
            counts = {f: len(range(i, variant.own, len(families))) for i, f in enumerate(families)}
            by_family = _own_text.write(self._model, counts, length, 0, _say)
            return [window for windows in by_family.values() for window in windows]

        sets: dict[str, Callable[[int], list[Tokens]]] = {}
        if variant.windows:
            name = variant.text or (f"first-{variant.texts}" if variant.texts else "all")
            sets[f"{name}-{variant.windows}"] = of_texts
        if variant.own:
            sets[f"own-{variant.own}"] = written
        return sets

    def _collect(self, variant: Variant) -> tuple[list[Path], Path]:
        """Returns the caches of a variant's windows and the metric of gradients."""
        options = TrainingOptions("variant", tokens=self._tokens)
        trainer = Trainer(self._model, options, _say)
        parts = []
        for name, windows in self._sets(variant).items():
            folder = self._folder / name
            kept = folder / "collected.pt"
            if not kept.exists():
                folder.mkdir(parents=True, exist_ok=True)
                found = trainer.collect(windows(options.tokens + options.fed), folder)
                torch.save(found, kept)
            parts.append(torch.load(kept, weights_only=False))
        metric = self._folder / f"{'-and-'.join(self._sets(variant))}.metric"
        trainer.write_metric(parts, metric)
        return [cache for part in parts for cache in part.caches], metric
