# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What a config.json of Hugging Face's transformers says of a model's rotary embedding."""

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from kvcompress.v1 import rope_pb2

ModelConfig = str | PathLike[str] | Mapping[str, Any]
"""The path of a config.json, or what is in it, of version 4 or 5 of transformers."""

# Models whose pairs are neighbouring channels; transformers says it in code.
_INTERLEAVED = frozenset(
    ["gptj", "codegen", "cohere", "cohere2", "glm", "glm4", "ernie4_5", "llama4_text", "helium"]
)
_WITHOUT = frozenset(["gpt2", "gpt_neo", "opt", "bloom", "mpt", "gpt_bigcode"])
# Fields of which one says that there is a rotary embedding.
_FIELDS = (
    *("rope_theta", "rope_parameters", "rope_scaling", "rotary_dim", "rotary_pct"),
    *("rotary_emb_base", "partial_rotary_factor"),
)


def rope_parameters(config: ModelConfig) -> rope_pb2.RopeParameters:
    """Gives the message of the API for a model's configuration.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no JSON object, says nothing of a rotary embedding, or has frequencies
            that depend on the length of a prompt.
    """
    if not isinstance(config, Mapping):
        config = json.loads(Path(config).read_text(encoding="utf-8"))
        if not isinstance(config, Mapping):
            raise ValueError("model config: it is no JSON object")
    config = _object(config, "text_config") or config
    rope = rope_pb2.RopeParameters()
    if config.get("model_type") in _WITHOUT:
        return rope
    if not config.get("model_type") and not any(field in config for field in _FIELDS):
        raise ValueError("model config: it says nothing of a rotary embedding")
    parameters = _object(config, "rope_parameters")
    if parameters and all(isinstance(each, Mapping) for each in parameters.values()):
        numbers = {}
        for number, kind in enumerate(sorted(parameters), 1):
            rope.embeddings.append(_embedding(config, parameters[kind]))
            numbers[kind] = number
        rope.layers.extend(numbers.get(kind, 0) for kind in _kinds(config))
    else:
        rope.embeddings.append(_embedding(config, parameters or _object(config, "rope_scaling")))
        local = _number(config, "rope_local_base_freq")
        if local is not None:
            # Layers with a window have a base of their own, and no scaling (Gemma 3).
            rope.embeddings.append(rope.embeddings[0])
            rope.embeddings[1].theta = local
            rope.embeddings[1].ClearField("scaling")
            rope.layers.extend(1 + (kind == "sliding_attention") for kind in _kinds(config))
    _take_away_layers(config, rope)
    return rope


def _object(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Gives what is under a key where it is an object, else an empty one."""
    value = config.get(key)
    return value if isinstance(value, Mapping) else {}


def _number(config: Mapping[str, Any], *keys: str) -> float | None:
    """Gives the first number under one of the keys."""
    for key in keys:
        value = config.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
    return None


def _kinds(config: Mapping[str, Any]) -> Sequence[str]:
    """Gives the kind of each layer, where it is known."""
    kinds = config.get("layer_types")
    if isinstance(kinds, Sequence):
        return kinds
    pattern = int(6 if (given := _number(config, "sliding_window_pattern")) is None else given)
    count = int(_number(config, "num_hidden_layers") or 0)
    return [
        "full_attention" if pattern and layer % pattern == 0 else "sliding_attention"
        for layer in range(1, count + 1)
    ]


def _take_away_layers(config: Mapping[str, Any], rope: rope_pb2.RopeParameters) -> None:
    """Takes the embedding from the layers that have none."""
    kept = config.get("no_rope_layers")
    if not isinstance(kept, Sequence):
        return
    if not rope.layers:
        rope.layers.extend(1 for _ in kept)
    for layer, has in enumerate(kept[: len(rope.layers)]):
        if has == 0:
            rope.layers[layer] = 0


def _embedding(config: Mapping[str, Any], parameters: Mapping[str, Any]) -> rope_pb2.RopeEmbedding:
    """Gives one embedding; `parameters` go before what all layers share."""
    theta = _number(parameters, "rope_theta")
    if theta is None:
        theta = _number(config, "rope_theta", "rotary_emb_base")
    embedding = rope_pb2.RopeEmbedding(theta=10000 if theta is None else theta)
    if config.get("model_type") in _INTERLEAVED:
        embedding.pairs = rope_pb2.ROPE_PAIRS_INTERLEAVED
    latent, rotary = _number(config, "kv_lora_rank"), _number(config, "qk_rope_head_dim")
    if latent is not None and rotary is not None:
        embedding.first_channel, embedding.rotary_channels = int(latent), int(rotary)
    else:
        embedding.rotary_channels = _rotary_channels(config, parameters)
    _add_scaling(config, parameters, embedding)
    return embedding


def _rotary_channels(config: Mapping[str, Any], parameters: Mapping[str, Any]) -> int:
    """Gives the rotated channels of a head; 0 for all."""
    channels = _number(config, "rotary_dim")
    if channels is not None:
        return int(channels)
    factor = _number(parameters, "partial_rotary_factor")
    if factor is None:
        factor = _number(config, "partial_rotary_factor", "rotary_pct")
    if factor is None or not 0 < factor < 1:
        return 0
    head = _number(config, "head_dim")
    if head is None:
        hidden, heads = _number(config, "hidden_size"), _number(config, "num_attention_heads")
        head = hidden // heads if hidden and heads else 0
    return int(head * factor)


def _add_scaling(
    config: Mapping[str, Any], parameters: Mapping[str, Any], embedding: rope_pb2.RopeEmbedding
) -> None:
    """Sets how frequencies are scaled."""
    kind = parameters.get("rope_type") or parameters.get("type")
    # Those of text are the same for all axes of `mrope`.
    if kind in (None, "default", "mrope"):
        return
    if kind not in ("linear", "llama3", "yarn"):
        raise ValueError(
            f"model config: rope_type {kind} has frequencies that depend on the length of the "
            "prompt, or is not known: give the fields that hold, or none of them"
        )
    factor = _number(parameters, "factor")
    if factor is None:
        raise ValueError(f"model config: rope_type {kind} without a factor")
    if kind == "linear":
        embedding.scaling.linear.factor = factor
        return
    positions = _number(parameters, "original_max_position_embeddings")
    if positions is None:
        keys = ("original_max_position_embeddings", "max_position_embeddings")
        positions = _number(config, *keys)
    if kind == "llama3":
        llama3 = embedding.scaling.llama3
        llama3.factor, llama3.original_positions = factor, positions or 0
        if (low := _number(parameters, "low_freq_factor")) is not None:
            llama3.low_frequency_factor = low
        if (high := _number(parameters, "high_freq_factor")) is not None:
            llama3.high_frequency_factor = high
        return
    yarn = embedding.scaling.yarn
    yarn.factor, yarn.original_positions = factor, positions or 0
    if (fast := _number(parameters, "beta_fast")) is not None:
        yarn.beta_fast = fast
    if (slow := _number(parameters, "beta_slow")) is not None:
        yarn.beta_slow = slow
    if isinstance(parameters.get("truncate"), bool):
        yarn.truncate = parameters["truncate"]
