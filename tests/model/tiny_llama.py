# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The model of the tests that need one but not what it has learnt; a conftest.py imports it."""

from typing import Any

import pytest


@pytest.fixture(scope="session")
def model() -> Any:
    """A Llama with two layers and random weights, the same in every run; float32."""
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
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config).eval()
