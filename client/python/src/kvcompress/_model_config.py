# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What a config.json of Hugging Face's transformers says of a model's rotary embedding."""

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from kvcompress.v1 import rope_pb2

ModelConfig = str | PathLike[str] | Mapping[str, Any]
"""The path of a config.json, or what is in it, of version 4 or 5 of transformers."""

# Models whose pairs are neighbouring channels; transformers says it in code.
_INTERLEAVED = {
    *("codegen", "cohere", "cohere2", "cohere2_moe", "ernie4_5", "ernie4_5_moe", "glm", "glm4"),
    *("gptj", "helium", "llama4_text"),
}
_WITHOUT = frozenset(["gpt2", "gpt_neo", "opt", "bloom", "mpt", "gpt_bigcode"])
# Fields of which one says that there is a rotary embedding.
_FIELDS = (
    *("rope_theta", "rope_parameters", "rope_scaling", "rotary_dim", "rotary_pct"),
    *("rotary_emb_base", "partial_rotary_factor"),
)


class _Defaults(NamedTuple):
    """What transformers takes for a model whose config.json leaves it out."""

    theta: float | None = None
    rotated: float = 1
    """Share of a head."""
    window_theta: float | None = None
    """Of layers with a window, where it is one of their own."""
    pattern: int = 6
    """Each such layer has no window."""


_DEFAULTS = {
    "codegen": _Defaults(1e4),
    "cohere": _Defaults(5e5),
    "cohere2": _Defaults(1e4),
    "deepseek_v2": _Defaults(1e4),
    "deepseek_v3": _Defaults(1e4),
    "ernie4_5": _Defaults(5e5),
    "ernie4_5_moe": _Defaults(5e5),
    "gemma": _Defaults(1e4),
    "gemma2": _Defaults(1e4),
    "gemma3_text": _Defaults(1e6, 1, 1e4, 6),
    "gemma3n_text": _Defaults(1e6, 1, 1e4, 5),
    "glm": _Defaults(1e4, 0.5),
    "glm4": _Defaults(1e4, 0.5),
    "glm4_moe": _Defaults(1e4, 0.5),
    "gpt_neox": _Defaults(1e4, 0.25),
    "gpt_oss": _Defaults(1.5e5),
    "gptj": _Defaults(1e4),
    "granite": _Defaults(1e4),
    "helium": _Defaults(1e5),
    "llama": _Defaults(1e4),
    "llama4_text": _Defaults(5e5),
    "mistral": _Defaults(1e4),
    "mixtral": _Defaults(1e6),
    "mllama_text_model": _Defaults(5e5),
    "nemotron": _Defaults(1e4, 0.5),
    "olmo": _Defaults(1e4),
    "olmo2": _Defaults(1e4),
    "olmo3": _Defaults(5e5, 1, 5e5, 4),
    "persimmon": _Defaults(1e4, 0.5),
    "phi": _Defaults(1e4, 0.5),
    "phi3": _Defaults(1e4),
    "phimoe": _Defaults(1e6),
    "qwen2": _Defaults(1e4),
    "qwen2_5_vl_text": _Defaults(1e6),
    "qwen2_moe": _Defaults(1e4),
    "qwen2_vl_text": _Defaults(1e6),
    "qwen3": _Defaults(1e4),
    "qwen3_moe": _Defaults(1e4),
    "qwen3_next": _Defaults(1e4, 0.25),
    "qwen3_vl_text": _Defaults(5e5),
    "smollm3": _Defaults(2e6),
    "stablelm": _Defaults(1e4, 0.25),
    "starcoder2": _Defaults(1e4),
}
# Each fourth layer has no embedding unless they say otherwise.
_SKIPPING = {"llama4_text": 4, "smollm3": 4}


def read_config(config: ModelConfig) -> Mapping[str, Any]:
    """Returns the content of a configuration.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no JSON object.
    """
    if isinstance(config, Mapping):
        return config
    found = json.loads(Path(config).read_text(encoding="utf-8-sig"))
    if not isinstance(found, Mapping):
        raise ValueError("model config: it is no JSON object")
    return found


def rope_parameters(config: ModelConfig) -> rope_pb2.RopeParameters:
    """Returns the message of the API for a model's configuration.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no JSON object, says nothing of a rotary embedding, or has frequencies
            that depend on the length of a prompt.
    """
    config = read_config(config)
    config = _object(config, "text_config") or config
    rope = rope_pb2.RopeParameters()
    if config.get("model_type") in _WITHOUT:
        return rope
    if not config.get("model_type") and not any(field in config for field in _FIELDS):
        raise ValueError("model config: it says nothing of a rotary embedding")
    parameters = _object(config, "rope_parameters")
    if parameters and all(isinstance(each, Mapping | None) for each in parameters.values()):
        numbers = {}
        for kind in sorted(parameters):
            if parameters[kind] is not None:
                rope.embeddings.append(_embedding(config, parameters[kind]))
            numbers[kind] = 0 if parameters[kind] is None else len(rope.embeddings)
        _add_layers(config, numbers, rope)
    else:
        rope.embeddings.append(_embedding(config, parameters or _object(config, "rope_scaling")))
        window = _number(config, "rope_local_base_freq")
        if window is None:
            window = _defaults(config).window_theta
        if window is not None:
            # Layers with a window have a base of their own, and no scaling (Gemma 3, Olmo 3).
            rope.embeddings.append(rope.embeddings[0])
            rope.embeddings[1].theta = window
            rope.embeddings[1].ClearField("scaling")
            _add_layers(config, {"full_attention": 1, "sliding_attention": 2}, rope)
    _take_away_layers(config, rope)
    return rope


def _defaults(config: Mapping[str, Any]) -> _Defaults:
    """Returns what holds for a model of that type."""
    return _DEFAULTS.get(config.get("model_type", ""), _Defaults())


def _object(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Returns what is under a key where it is an object, else an empty one."""
    value = config.get(key)
    return value if isinstance(value, Mapping) else {}


def _number(config: Mapping[str, Any], *keys: str) -> float | None:
    """Returns the first number under one of the keys."""
    for key in keys:
        value = config.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
    return None


def _kinds(config: Mapping[str, Any]) -> Sequence[str]:
    """Returns the kind of each layer, where it is known."""
    kinds = config.get("layer_types")
    if isinstance(kinds, Sequence):
        return kinds
    pattern = _number(config, "sliding_window_pattern", "_sliding_window_pattern")
    pattern = int(_defaults(config).pattern if pattern is None else pattern)
    count = int(_number(config, "num_hidden_layers") or 0)
    return [
        "full_attention" if pattern and layer % pattern == 0 else "sliding_attention"
        for layer in range(1, count + 1)
    ]


def _add_layers(
    config: Mapping[str, Any], numbers: Mapping[str, int], rope: rope_pb2.RopeParameters
) -> None:
    """Returns the embedding of each layer's kind."""
    for kind in _kinds(config):
        if kind not in numbers:
            raise ValueError(f"model config: layers of type {kind} have no rope_parameters")
        rope.layers.append(numbers[kind])
    if not rope.layers:
        raise ValueError(
            "model config: kinds of layers differ, and neither layer_types nor num_hidden_layers "
            "says which layers there are"
        )


def _take_away_layers(config: Mapping[str, Any], rope: rope_pb2.RopeParameters) -> None:
    """Takes the embedding from the layers that have none."""
    kept = config.get("no_rope_layers")
    interval = _number(config, "no_rope_layer_interval")
    if interval is None:
        interval = _SKIPPING.get(config.get("model_type", ""))
    if not isinstance(kept, Sequence) or not kept:
        count = int(_number(config, "num_hidden_layers") or 0)
        kept = [layer % interval for layer in range(1, count + 1)] if interval else []
    if not rope.layers:
        rope.layers.extend(1 for _ in kept)
    for layer, has in enumerate(kept[: len(rope.layers)]):
        if has == 0:
            rope.layers[layer] = 0


def _embedding(config: Mapping[str, Any], parameters: Mapping[str, Any]) -> rope_pb2.RopeEmbedding:
    """Returns one embedding; `parameters` go before what all layers share."""
    theta = _number(parameters, "rope_theta")
    if theta is None:
        theta = _number(config, "rope_theta", "rotary_emb_base")
    if theta is None:
        theta = _defaults(config).theta
    embedding = rope_pb2.RopeEmbedding(theta=theta or 0)
    if config.get("model_type") in _INTERLEAVED:
        embedding.pairs = rope_pb2.ROPE_PAIRS_INTERLEAVED
    latent, rotary = _number(config, "kv_lora_rank"), _number(config, "qk_rope_head_dim")
    if latent is not None and rotary is not None:
        embedding.first_channel, embedding.rotary_channels = int(latent), int(rotary)
    else:
        embedding.rotary_channels = _rotary_channels(config, parameters)
    _add_scaling(config, parameters, embedding)
    if theta is None:
        kind = config.get("model_type", "")
        raise ValueError(
            f'model config: it has no rope_theta, and that of model_type "{kind}" is not known '
            "here: add rope_theta"
        )
    return embedding


def _rotary_channels(config: Mapping[str, Any], parameters: Mapping[str, Any]) -> int:
    """Returns the rotated channels of a head; 0 for all."""
    channels = _number(config, "rotary_dim")
    if channels is not None:
        return int(channels)
    factor = _number(parameters, "partial_rotary_factor")
    if factor is None:
        factor = _number(config, "partial_rotary_factor", "rotary_pct")
    if factor is None:
        factor = _defaults(config).rotated
    if not 0 < factor < 1:
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
