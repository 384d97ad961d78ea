# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Rotary embeddings of a config.json against those that transformers makes of it."""

import importlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import torch
import transformers.modeling_utils  # takes long, which is not to count as a test

from kvcompress import Client, payload
from kvcompress._model_config import _DEFAULTS, _INTERLEAVED, rope_parameters
from kvcompress.payload._ecsq_block import read_rotation
from kvcompress.v1 import rope_pb2
from oracle.rope import Floats, keys, rotate
from oracle.source import tensor, write
from oracle.test_rope import MODELS, config


def modelled(fields: dict[str, Any]) -> Any:
    """Returns transformers' configuration of a language model."""
    return transformers.AutoConfig.for_model(**fields).get_text_config()


def code_of(model: Any) -> ModuleType:
    """Returns the module that has the model itself."""
    return importlib.import_module(type(model).__module__.replace("configuration_", "modeling_"))


def frequencies(model: Any, layer: int) -> Floats:
    """Returns the radians per token of each pair of a layer, from the model's own code."""
    code = code_of(model)
    names = [name for name in dir(code) if name.endswith("RotaryEmbedding")]
    if not names:
        row = code.create_sinusoidal_positions(2, model.rotary_dim)[1].double().numpy()
        turns: Floats = np.arctan2(*np.split(row, 2))
        return turns
    embedding = getattr(code, names[0])(model)
    kind = (getattr(model, "layer_types", None) or [""] * (layer + 1))[layer]
    found = getattr(embedding, f"{kind}_inv_freq", None)
    frequency: Floats = (embedding.inv_freq if found is None else found).double().numpy()
    return frequency


@pytest.mark.parametrize("name", MODELS)
def test_the_payload_turns_as_the_model_does(client: Client, name: str) -> None:
    channels, _, layer, _, interleaved = MODELS[name]
    turns = frequencies(modelled(config(name)), layer)
    made = rotate(keys((1, 2, 96, channels), 1), turns, interleaved=interleaved)
    file = write([tensor(f"layer_{layer}_key", "BF16", made)])
    artefact = client.compress(file, codec="ecsq:high", model_config=config(name)).artefact or b""
    (entry,) = payload.read_header(artefact).tensors
    rotation, _ = read_rotation(artefact[entry.begin : entry.end], 12, channels, entry)
    assert rotation is not None
    assert rotation.pairs == len(turns)
    ours = 2 * np.pi / 2.0**64 * np.array([float(each) for each in rotation.increments])
    np.testing.assert_allclose(ours, turns, rtol=2e-6)  # the model's are binary32


def embeddings(rope: rope_pb2.RopeParameters, layers: int) -> list[rope_pb2.RopeEmbedding | None]:
    """Returns that of each layer."""
    numbers = list(rope.layers) or [1] * layers
    assert len(numbers) == layers
    return [rope.embeddings[number - 1] if number else None for number in numbers]


def expect_like(model: Any, rope: rope_pb2.RopeParameters) -> None:
    """Checks base and part of each layer against transformers' configuration."""
    layers = model.num_hidden_layers
    kept = getattr(model, "no_rope_layers", None) or [1] * layers
    kinds = getattr(model, "layer_types", None) or [""] * layers
    for ours, kind, has in zip(embeddings(rope, layers), kinds, kept, strict=True):
        theirs = (model.rope_parameters or {}).get(kind, model.rope_parameters)
        assert (ours is not None) == bool(has)
        if ours is None or theirs is None:
            continue
        assert ours.theta == theirs["rope_theta"]
        head = getattr(model, "head_dim", None) or model.hidden_size // model.num_attention_heads
        part = int(head * theirs.get("partial_rotary_factor", 1))
        assert ours.rotary_channels == (0 if part == head else part) or ours.first_channel


@pytest.mark.parametrize("name", MODELS)
def test_every_layer_of_a_model(name: str) -> None:
    model = modelled(config(name))
    if model.model_type != "gptj":  # has no fields but rotary_dim
        expect_like(model, rope_parameters(config(name)))


@pytest.mark.parametrize("kind", sorted(_DEFAULTS))
def test_what_a_config_leaves_out(kind: str) -> None:
    """A configuration with nothing in it but its size."""
    model = transformers.CONFIG_MAPPING[kind]()
    fields = {"model_type": kind, "num_hidden_layers": model.num_hidden_layers}
    for name in ("hidden_size", "num_attention_heads", "head_dim"):
        if isinstance(getattr(model, name, None), int):
            fields[name] = getattr(model, name)
    rope = rope_parameters(fields)
    if getattr(model, "rope_parameters", None):
        expect_like(model, rope)
    else:
        assert [each.theta for each in rope.embeddings] == [1e4]


def test_pairs_that_neighbour() -> None:
    """As the function of transformers turns them that each model has."""
    for kind in sorted(_DEFAULTS):
        code = code_of(transformers.CONFIG_MAPPING[kind]())
        turn = getattr(code, "rotate_half", None) or getattr(code, "rotate_every_two", None)
        if turn is not None and kind != "deepseek_v3":  # may have either, and says so elsewhere
            turned = turn(torch.arange(4.0).reshape(1, 1, 1, 4)).flatten().tolist()
            assert (turned == [-1, 0, -3, 2]) == (kind in _INTERLEAVED), kind
