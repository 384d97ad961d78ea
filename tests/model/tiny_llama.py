# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The model of the tests that need one but not what it has learnt; a conftest.py imports it."""

from typing import Any

import pytest

NEW = 25  # tokens that are generated


def make_model(layers: int = 2) -> Any:
    """A Llama with random weights, the same in every run; float32."""
    import torch  # type: ignore[import-not-found,unused-ignore]
    from transformers import (  # type: ignore[import-not-found,unused-ignore]
        LlamaConfig,
        LlamaForCausalLM,
    )

    # The threads of OpenMP spin while they wait, and would take the service's processors.
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config).eval()


def prompt(rows: int = 1, tokens: int = 70) -> Any:
    """Ids that are the same in every run."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    return torch.randint(0, 97, (rows, tokens), generator=torch.Generator().manual_seed(rows))


def generate(model: Any, ids: Any, cache: Any, **arguments: Any) -> Any:
    """Continues a prompt by NEW tokens."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    fixed = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
    mask = torch.ones_like(ids)
    return model.generate(ids, attention_mask=mask, past_key_values=cache, **{**fixed, **arguments})


@pytest.fixture(scope="session")
def model() -> Any:
    """One with two layers."""
    return make_model()
