# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A model with multi-head latent attention (MLA), as DeepSeek has it, with random weights."""

import shutil
from pathlib import Path

# The widths that vLLM's kernel for CPUs has: those of DeepSeek-V2 and V3.
LATENT, ROPE = 512, 64
LAYERS = 2


def make_model(folder: Path, tokenizer: Path) -> None:
    """Makes a folder of a model.

    Args:
        folder: Where.
        tokenizer: The folder of a model whose tokenizer it gets.
    """
    import torch
    from transformers import (  # type: ignore[import-not-found,unused-ignore]
        DeepseekV2Config,
        DeepseekV2ForCausalLM,
    )

    torch.manual_seed(0)
    config = DeepseekV2Config(
        vocab_size=49152,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=LAYERS,
        first_k_dense_replace=LAYERS,  # no layer has experts
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=None,
        kv_lora_rank=LATENT,
        qk_rope_head_dim=ROPE,
        qk_nope_head_dim=64,
        v_head_dim=64,
        head_dim=ROPE,
        max_position_embeddings=4096,
        # With small weights attention is flat, and the same token follows whatever is in the cache.
        initializer_range=0.15,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    DeepseekV2ForCausalLM(config).save_pretrained(folder)
    for file in tokenizer.glob("tokenizer*"):
        shutil.copy(file, folder)
