# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Finds the profile of a model: by its shape, its rotary embedding and its name."""

import math
import re
import struct
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kvcompress._info import ServerInfo
from kvcompress._model_config import ModelConfig, read_config, rope_parameters
from kvcompress.profiles._report import (
    open_profile,
    presets_of,
    read_header,
    read_profile,
)
from kvcompress.v1 import rope_pb2

_TURN = 2.0**64  # of the increments of a profile
# What the frequency of a pair may be off, as a part of it and in turns a token.
_OFF, _OFF_TURNS = 0.005, 1e-9
_MOST_ROTATION = 1 << 20  # bytes


class HasServerInfo(Protocol):
    """A client, such as kvcompress.Client."""

    def server_info(self) -> ServerInfo:
        """Returns what the server has."""
        ...


class _Layer(NamedTuple):
    """The cache of a layer."""

    heads: int
    channels: int
    turns: tuple[float, ...]
    """Of each pair of channels of the keys, a token."""
    interleaved: bool
    """Whether it is known that neighbouring channels are a pair."""


def for_model(
    model: object | ModelConfig,
    source: str | PathLike[str] | HasServerInfo,
    *,
    label: str | None = None,
    preset: str | None = None,
) -> str:
    """Finds the profile of a model, for `profile=`.

    In a folder a profile fits whose layers, heads, channels and rotary embedding are those of the
    model. Among those that fit, one whose label is the model's name goes before others, which are
    taken where there is only one. A server does not report shapes: there the label decides.

    Args:
        model: A model of transformers, its configuration, the path of a config.json, or what is
            in it.
        source: A folder with files NAME.profile, or a client.
        label: The label that the profile must have; no other then counts.
        preset: A preset that the profile must have, such as contract: that one has a profile of
            its own, with the same label as the profile of high, max and ultra.

    Returns:
        The digest, which names the profile on every server that has it.

    Raises:
        LookupError: None belongs to the model, or which one is not clear; it says why.
        ValueError: The configuration does not say what shape or rotary embedding the model has.
        OSError: A file that fits can no longer be read.
    """
    config = _config(model)
    names = {_plain(label)} if label is not None else _names(config)
    if hasattr(source, "server_info"):
        return _on_server(source.server_info(), names, preset)
    return _in_folder(Path(source), config, names, label, preset)


def _config(model: object | ModelConfig) -> Mapping[str, Any]:
    """Returns what a config.json would hold."""
    if isinstance(model, str | PathLike | Mapping):
        return read_config(model)
    own = getattr(model, "config", model)
    fields = own.to_dict() if hasattr(own, "to_dict") else None
    if not isinstance(fields, Mapping):
        raise ValueError(f"a {type(model).__name__} is no model of transformers, nor its config")
    return {**fields, "_name_or_path": getattr(own, "_name_or_path", "")}


def _plain(name: str) -> str:
    """Returns a name in a spelling to compare."""
    return re.sub(r"[-_ .]+", "-", name).casefold()


def _names(config: Mapping[str, Any]) -> set[str]:
    """Returns the names of a model: with its owner and without."""
    path = str(config.get("_name_or_path") or "")
    last = path.rstrip("/").rpartition("/")[2]
    return {_plain(name) for name in (path, last, last.removesuffix(".gguf")) if name}


def _on_server(info: ServerInfo, names: set[str], preset: str | None) -> str:
    found = [
        each
        for each in info.profiles
        if _plain(each.label) in names and (preset is None or preset in each.presets)
    ]
    if len(found) == 1:
        return found[0].digest
    there = ", ".join(f"{each.label} ({each.name})" for each in info.profiles) or "none"
    wanted = " or ".join(sorted(names)) or "a model without a name"
    if preset is not None:
        wanted += f" with the preset {preset}"
    problem = "several profiles" if found else "no profile"
    raise LookupError(f"the server has {problem} of {wanted}; it has {there}")


def _in_folder(
    folder: Path,
    config: Mapping[str, Any],
    names: set[str],
    label: str | None,
    preset: str | None,
) -> str:
    layers = _layers(config)
    fitting: dict[Path, str] = {}
    problems = []
    for path in sorted(folder.glob("*.profile")):
        try:
            own, problem = _check(path, layers, preset)
        except (ValueError, OSError) as error:
            own, problem = "", str(error)
        if problem is None and (label is None or _plain(own) in names):
            fitting[path] = own
        else:
            problems.append(f"{path.name}: {problem or f'its label is {own}'}")
    named = [path for path, own in fitting.items() if _plain(own) in names]
    chosen = named or list(fitting)
    if len(chosen) == 1:
        return read_profile(chosen[0]).digest
    if chosen:
        which = ", ".join(f"{path.name} ({fitting[path]})" for path in chosen)
        raise LookupError(
            f"several profiles fit the model: {which}; name one by its label, or a preset"
        )
    reasons = "; ".join(problems) or "there are none"
    raise LookupError(f"no profile in {folder} fits the model: {reasons}")


def _check(path: Path, layers: Sequence[_Layer], preset: str | None) -> tuple[str, str | None]:
    """Returns the label of a profile, and why it does not fit, None if it does.

    Raises:
        ValueError: The file is not a profile.
    """
    header = read_header(path)
    metadata = header.get("__metadata__", {})
    try:
        members = re.split("[,;]", metadata["kvcompress.profile.groups"])
        found = [re.split("[:x]", member) for member in members]
        label = metadata["kvcompress.profile.label"]
        if preset is not None:
            presets = [each.name for each in presets_of(metadata)]
            if preset not in presets:
                return label, f"it has the presets {', '.join(presets)}, and not {preset}"
        rotations = _rotations(path, header)
        kinds = metadata["kvcompress.profile.rotations"].split(",")
        wanted = {f"{role}{layer}" for layer in range(len(layers)) for role in "kv"}
        if {member[0] for member in found} != wanted:
            count = len({member[0][1:] for member in found})
            return label, f"it has {count} layers, the model {len(layers)}"
        for name, heads, channels, rotation in found:
            layer = layers[int(name[1:])]
            if (int(heads), int(channels)) != (layer.heads, layer.channels):
                own = f"{layer.heads} x {layer.channels}"
                return label, f"{name} has {heads} heads x {channels} channels, the model {own}"
            if name[0] == "v":
                continue
            halves = rotation != "-" and kinds[int(rotation)] == "halves"
            if not _same(rotations[rotation], layer.turns) or (layer.interleaved and halves):
                return label, f"another rotary embedding in layer {name[1:]}"
    except (KeyError, IndexError, TypeError, AttributeError, struct.error) as error:
        raise ValueError(f"{path.name} is no profile, or a damaged one: {error!r}") from error
    return label, None


def _rotations(path: Path, header: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Returns the turns of each pair per token, by the number of the rotation in the profile."""
    found: dict[str, tuple[float, ...]] = {"-": ()}
    with open_profile(path) as file:
        (length,) = struct.unpack("<Q", file.read(8))
        for name, spec in header.items():
            if not name.startswith("rotation."):
                continue
            begin, end = spec["data_offsets"]
            if not 0 <= end - begin <= _MOST_ROTATION:
                raise ValueError(f"{path.name} is damaged: {name} has {end - begin} bytes")
            file.seek(8 + length + begin)
            increments = struct.unpack(f"<{(end - begin) // 8}Q", file.read(end - begin))
            found[name.removeprefix("rotation.")] = tuple(each / _TURN for each in increments)
    return found


def _same(turns: Sequence[float], others: Sequence[float]) -> bool:
    return len(turns) == len(others) and all(
        abs(one - other) <= _OFF * other + _OFF_TURNS
        for one, other in zip(turns, others, strict=True)
    )


def _layers(config: Mapping[str, Any]) -> list[_Layer]:
    """Returns the shape and rotation of each layer's cache."""
    text = config.get("text_config")
    own = text if isinstance(text, Mapping) else config
    layers, heads = _count(own, "num_hidden_layers", "n_layer"), _kv_heads(own)
    channels = own.get("head_dim")
    if not channels:
        queries = _count(own, "num_attention_heads", "n_head")
        channels = _count(own, "hidden_size", "n_embd") // queries
    rope = rope_parameters(config)
    found = []
    for layer in range(layers):
        number = rope.layers[layer] if layer < len(rope.layers) else min(1, len(rope.embeddings))
        if number == 0:
            found.append(_Layer(heads, channels, (), interleaved=False))
            continue
        embedding = rope.embeddings[number - 1]
        interleaved = embedding.pairs == rope_pb2.ROPE_PAIRS_INTERLEAVED
        found.append(_Layer(heads, channels, _turns(embedding, channels), interleaved))
    return found


def _count(config: Mapping[str, Any], *keys: str) -> int:
    """Returns the first number under one of the keys."""
    for key in keys:
        if isinstance(value := config.get(key), int) and value > 0:
            return value
    raise ValueError(f"model config: it has no {keys[0]}")


def _kv_heads(config: Mapping[str, Any]) -> int:
    return _count(config, "num_key_value_heads", "num_attention_heads", "n_head")


def _turns(embedding: rope_pb2.RopeEmbedding, channels: int) -> tuple[float, ...]:
    """Returns the turns of each pair per token."""
    pairs = (embedding.rotary_channels or channels) // 2
    angles = [embedding.theta ** (-pair / pairs) for pair in range(pairs)]
    factors = _multipliers(embedding, angles)
    return tuple(
        angle * factor / (2 * math.pi) for angle, factor in zip(angles, factors, strict=True)
    )


def _multipliers(embedding: rope_pb2.RopeEmbedding, angles: Sequence[float]) -> list[float]:
    """Returns the scale of each pair's angle."""
    kind = embedding.scaling.WhichOneof("scaling")
    if kind is None:
        return [1.0] * len(angles)
    if kind == "linear":
        return [1 / embedding.scaling.linear.factor] * len(angles)
    if kind == "llama3":
        llama3 = embedding.scaling.llama3
        low = llama3.low_frequency_factor if llama3.HasField("low_frequency_factor") else 1.0
        high = llama3.high_frequency_factor if llama3.HasField("high_frequency_factor") else 4.0
        waves = (llama3.original_positions * angle / (2 * math.pi) for angle in angles)
        kept = [min(max((wave - low) / (high - low), 0.0), 1.0) for wave in waves]
        return [(1 - part) / llama3.factor + part for part in kept]
    return _yarn(embedding, len(angles))


def _yarn(embedding: rope_pb2.RopeEmbedding, pairs: int) -> list[float]:
    yarn = embedding.scaling.yarn

    def pair_of(turns: float) -> float:
        """The pair that turns so often within the original positions."""
        length = yarn.original_positions / (turns * 2 * math.pi)
        return pairs * math.log(length) / math.log(embedding.theta)

    low = pair_of(yarn.beta_fast if yarn.HasField("beta_fast") else 32.0)
    high = pair_of(yarn.beta_slow if yarn.HasField("beta_slow") else 1.0)
    if not yarn.HasField("truncate") or yarn.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0.0), min(high, 2.0 * pairs - 1)
    width = high - low or 0.001
    ramps = [min(max((pair - low) / width, 0.0), 1.0) for pair in range(pairs)]
    return [ramp / yarn.factor + 1 - ramp for ramp in ramps]
