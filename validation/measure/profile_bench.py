# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Measures whole files of kv-compress by what a model makes of the caches that come back.

Needs torch, and the native program.
"""

import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from kvcompress._programs import find_program
from kvcompress.profiles import read_profile
from measure.injection import (
    Cache,
    compare,
    continue_with,
    first_tokens,
    prefill,
    split,
    spread,
    to_tensors,
)
from measure.rows import Coded, ServiceRow
from measure.texts import TEXTS, UNUSUAL

REFERENCE = "int4"
COPIED = 400  # tokens that the last kind of text repeats

Flags = Sequence[str | Path]
Row = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """A window of text, and what the model says of it with its own cache.

    Attributes:
        text: The name of the text.
        source: The cache of the prefix.
        fed: The tokens behind it.
        targets: What follows each.
        base: The log-probabilities of what follows each.
    """

    text: str
    source: Path
    fed: torch.Tensor
    targets: torch.Tensor
    base: torch.Tensor


def windows_of(
    tokenizer: Any,
    prefix: int,
    continuation: int,
    count: int,
    *,
    copies: bool = True,
    unusual: bool = False,
) -> Iterator[tuple[str, list[int]]]:
    """Yields windows with the names of their texts.

    Args:
        tokenizer: Of the model.
        prefix: Tokens that are compressed.
        continuation: Tokens that are scored.
        count: Windows of each text.
        copies: Whether there is a kind of text that ends with a passage of its own.
        unusual: Whether kinds that are unlike those of trainings take the place of the others.
    """
    first = first_tokens(tokenizer)
    length = prefix + continuation + 1 - len(first)
    for text in UNUSUAL if unusual else TEXTS:
        tokens = tokenizer(text.read(), add_special_tokens=False)["input_ids"]
        cut = spread(tokens, length, count)
        for window in cut:
            yield text.name, first + window
        if text.name != "news" or not copies:
            continue
        copied = min(COPIED, (prefix - continuation) // 2 - 4)
        for window in cut:
            # The prefix ends within a copy, with which the continuation goes on.
            begin = prefix - len(first) - 2 * copied - continuation - 1
            passage = window[begin : begin + copied + continuation + 1]
            yield "copy", first + window[: length - len(passage)] + passage


def run(*arguments: str | Path) -> None:
    """Runs kv-compress."""
    program = find_program("kv-compress")
    if program is None:
        sys.exit("Error: no kv-compress: name its folder in KVCOMPRESS_BIN_DIR")
    subprocess.run([program, "-force", *arguments], check=True, stdout=subprocess.DEVNULL)


def profile_flags(flags: Flags) -> Flags:
    """Returns those that restoring needs, of the flags of a codec."""
    return flags[:2] if flags[0] == "-profile" else []


def coded(flags: Flags, source: Path, folder: Path) -> Coded:
    """Compresses a file with the flags of a codec, and restores it.

    Args:
        flags: Of kv-compress.
        source: The file.
        folder: For other files.
    """
    small, back = folder / "small", folder / "back"
    run(*flags, "-input", source, "-output", small)
    run(*profile_flags(flags), "-decompress", "-input", small, "-output", back)
    cache = load_file(back)
    elements = sum(each.numel() for each in cache.values())
    return Coded(cache, small.stat().st_size, elements)


@dataclass(frozen=True)
class FileRow:
    """A codec of kv-compress, given by its flags, as a row of a study."""

    name: str
    version: str
    flags: Flags
    family: str = ServiceRow.family
    fixed: bool = False

    def code(self, path: Path, source: Mapping[str, Any]) -> Coded:
        """See Row.code."""
        with tempfile.TemporaryDirectory() as folder:
            return coded(self.flags, path, Path(folder))


def flags_of(codecs: Sequence[str], profile: Path | None) -> dict[str, Flags]:
    """Returns the flags of codecs, and of the presets of a profile, by their names in tables."""
    rows: dict[str, Flags] = {codec: ["-codec", codec] for codec in codecs}
    if profile is not None:
        for preset in read_profile(profile).presets:
            name = f"klt:{preset.name}"
            rows[f"{name}, profile"] = ["-profile", profile, "-codec", name]
    return rows


def as_chunks(cache: Mapping[str, torch.Tensor], tokens: int) -> list[torch.Tensor]:
    """Cuts a cache into chunks as engines keep them: [2, layers, tokens, heads x head_dim]."""
    layers = range(len(cache) // 2)
    whole = torch.stack(
        [
            torch.stack(
                [cache[f"layer_{i}_{part}"][0].transpose(0, 1).flatten(1) for i in layers],
            )
            for part in ("key", "value")
        ]
    )
    return [chunk.contiguous() for chunk in whole.split(tokens, 2)]


def from_chunks(chunks: Sequence[torch.Tensor], heads: int) -> Cache:
    """Puts chunks together again."""
    whole = torch.cat(list(chunks), 2).unflatten(3, (heads, -1)).transpose(2, 3)
    return {
        f"layer_{i}_{part}": whole[role, i][None].contiguous()
        for i in range(whole.shape[1])
        for role, part in enumerate(("key", "value"))
    }


class Bench:
    """Measures codecs on a model."""

    def __init__(self, model: Any, folder: Path) -> None:
        """Takes the model, and a folder for files."""
        self.model = model
        self.folder = folder

    def take(self, text: str, window: Sequence[int], prefix: int, name: str = "source") -> Sample:
        """Lets the model read a window, and keeps its cache under a name."""
        read, fed, targets = split(list(window), prefix)
        cache = to_tensors(prefill(self.model, read), torch.bfloat16)
        source = self.folder / f"{name}.safetensors"
        save_file(cache, source)
        return Sample(text, source, fed, targets, continue_with(self.model, [cache], fed)[0])

    def measure(self, sample: Sample, flags: Flags) -> Row:
        """Measures a codec, given as flags of kv-compress."""
        made = coded(flags, sample.source, self.folder)
        return self._row(sample, made.cache, made.bytes)

    def measure_chunks(self, sample: Sample, tokens: int, flags: Flags) -> Row:
        """Measures a codec on chunks of the cache, each of which is an artefact of its own.

        No chunk says where in the text it was.
        """
        cache = load_file(sample.source)
        heads = int(cache["layer_0_key"].shape[1])
        names = []
        for i, chunk in enumerate(as_chunks(cache, tokens)):
            names.append(self.folder / f"chunk_{i:03}.safetensors")
            save_file({"chunk": chunk}, names[-1])
        size, restored = 0, []
        for name in names:
            made = coded([*flags, "-layout", f"2ltd:heads={heads}"], name, self.folder)
            size += made.bytes
            restored.append(made.cache["chunk"])
            name.unlink()
        return self._row(sample, from_chunks(restored, heads), size)

    def _row(self, sample: Sample, restored: Cache, size: int) -> Row:
        changed = continue_with(self.model, [restored], sample.fed)[0]
        score = compare(sample.base, changed, sample.targets)
        return {
            "bytes": size,
            "ratio": sample.source.stat().st_size / size,
            "kl": score.kl,
            "top1": score.top1,
            "perplexity": math.exp(score.nll) / math.exp(score.nll_base) - 1,
        }


def mean(rows: Sequence[Row], key: str) -> float:
    """The mean of a number over windows."""
    return float(sum(row[key] for row in rows) / len(rows))
