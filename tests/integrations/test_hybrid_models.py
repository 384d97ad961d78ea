# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Caches of transformers in which not every layer has keys and values alone."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from tiny_llama import generate, prompt  # noqa: E402
from transformers import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    AutoConfig,
    AutoModelForCausalLM,
    DynamicCache,
    StaticCache,
)
from transformers.cache_utils import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    DummyLayer,
)

import kvcompress  # noqa: E402
from kvcompress.integrations.transformers import (  # noqa: E402
    CompressedCache,
    cache_tensors,
    load_cache,
    save_cache,
)

EMPTY: dict[str, Callable[[Any], Any]] = {
    "static": lambda config: StaticCache(config=config, max_cache_len=100),
    "dynamic": lambda config: DynamicCache(config=config),
}


def lossless(client: kvcompress.Client, model: Any) -> CompressedCache:  # noqa: ANN401
    """A cache that is compressed often, and exactly."""
    return CompressedCache(
        client, model.config, codec="lossless", residual_length=8, block_length=16
    )


SMALL = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "pad_token_id": 0,
    "eos_token_id": None,
}


def shared_layers() -> Any:  # noqa: ANN401
    """A model whose last layers use the keys and values of others."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "gemma3n_text",
        **{**SMALL, "intermediate_size": [32] * 4},
        head_dim=8,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention"] * 2,
        num_kv_shared_layers=2,
        vocab_size_per_layer_input=100,
        hidden_size_per_layer_input=8,
        altup_num_inputs=2,
        laurel_rank=4,
        activation_sparsity_pattern=[0.0] * 4,
    )
    return AutoModelForCausalLM.from_config(config).eval()


def recurrent_layers() -> Any:  # noqa: ANN401
    """A model whose layers all have keys, values and a recurrent state."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "falcon_h1",
        **SMALL,
        head_dim=8,
        mamba_d_ssm=32,
        mamba_n_heads=4,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_n_groups=1,
        mamba_chunk_size=8,
    )
    return AutoModelForCausalLM.from_config(config).eval()


def test_layers_that_share_states(client: kvcompress.Client, tmp_path: Path) -> None:
    """Are compressed, saved and loaded without states of their own, into any cache."""
    model, ids = shared_layers(), prompt(1, 61)
    expected = generate(model, ids, DynamicCache(config=model.config))
    compressed = lossless(client, model)
    assert torch.equal(generate(model, ids, compressed), expected)
    assert [block.layers for block in compressed.blocks][:1] == [(1,)]
    assert compressed.stored_bytes > 0
    for kind in ("dynamic", "static"):
        cache = EMPTY[kind](model.config)
        with torch.no_grad():
            model(ids[:, :-1], past_key_values=cache)
        report = save_cache(client, tmp_path / kind, cache, codec="lossless")
        assert report.tensor_count == 4
        loaded = load_cache(client, tmp_path / kind, cache=DynamicCache(config=model.config))
        assert torch.equal(generate(model, ids, loaded), expected)
    loaded = load_cache(client, tmp_path / "dynamic")
    assert torch.equal(generate(model, ids, loaded), expected)
    short = DynamicCache(config=model.config)
    with torch.no_grad():
        model(ids[:, :8], past_key_values=short)
    with pytest.raises(ValueError, match="layer 2 has no states"):
        cache_tensors(short)


def test_cache_of_which_nothing_is_compressed_says_so(
    client: kvcompress.Client, tmp_path: Path
) -> None:
    """It works as transformers' own; its recurrent states are kept, and not saved."""
    model, ids = recurrent_layers(), prompt(1, 61)
    expected = generate(model, ids, DynamicCache(config=model.config))
    with pytest.warns(UserWarning, match="nothing .* LinearAttentionAndFullAttentionLayer holds"):
        cache = lossless(client, model)
    assert torch.equal(generate(model, ids, cache), expected)
    assert not list(cache.blocks)
    states = sum(layer.conv_states[0].nbytes for layer in cache.layers)
    states += sum(layer.recurrent_states[0].nbytes for layer in cache.layers)
    states += sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert cache.stored_bytes == states
    with pytest.raises(ValueError, match="more than keys and values: conv_states, recurrent_st"):
        save_cache(client, tmp_path / "cache", cache)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lossless(client, shared_layers())  # one of its layers sees every token


def test_layers_with_other_states_are_not_filled(client: kvcompress.Client, tmp_path: Path) -> None:
    """By a file without them, although they are still empty."""
    cache = DynamicCache()
    for layer in range(4):
        cache.update(torch.ones(1, 2, 20, 8), torch.ones(1, 2, 20, 8), layer)
    save_cache(client, tmp_path / "cache", cache, codec="lossless")
    empty = DynamicCache(config=recurrent_layers().config)
    with pytest.raises(ValueError, match="has more than keys and values"):
        load_cache(client, tmp_path / "cache", cache=empty)
    empty = DynamicCache(config=shared_layers().config)
    with pytest.raises(ValueError, match="has a window of 16"):
        load_cache(client, tmp_path / "cache", cache=empty)
    empty.layers = [DummyLayer() for _ in range(4)]
    with pytest.raises(ValueError, match="takes no states"):
        load_cache(client, tmp_path / "cache", cache=empty)


@pytest.mark.parametrize("text", ["[" * 100_000, "[1]", "{", '[{"size": 1}]'])
def test_metadata_of_somebody_else(client: kvcompress.Client, tmp_path: Path, text: str) -> None:
    metadata = {"transformers.layers": text}
    tensors = {"layer_0_key": torch.ones(1, 1, 2, 4)}
    client.compress(tensors, tmp_path / "file", codec="lossless", metadata=metadata)
    with pytest.raises(ValueError, match="is not what save_cache writes"):
        load_cache(client, tmp_path / "file")
