#!/usr/bin/env python3
# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Runs a model of transformers over a text, and writes its KV cache to cache.safetensors.

    cache_of_a_model.py MODEL TEXT

MODEL is a folder, a GGUF file, or a name on the Hugging Face hub. TEXT is a file, of which up to
1,024 tokens are read. Needs torch and transformers 5, and gguf for GGUF files.
"""

import argparse
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore]
from safetensors.torch import save_file
from transformers import (  # type: ignore[import-not-found,unused-ignore]
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
)

from kvcompress.integrations.transformers import cache_tensors

parser = argparse.ArgumentParser(description="writes the KV cache of a model to cache.safetensors")
parser.add_argument("model", help="a folder, a GGUF file, or a name on the hub")
parser.add_argument("text", type=Path, help="a file, of which up to 1,024 tokens are read")
asked = parser.parse_args()
source, options = asked.model, {"dtype": "auto"}
if source.endswith(".gguf"):  # which is read as F32
    options = {"gguf_file": Path(source).name, "dtype": "bfloat16"}
    source = str(Path(source).parent)
tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=options.get("gguf_file"))
model = AutoModelForCausalLM.from_pretrained(source, **options)
ids = tokenizer(asked.text.read_text(), return_tensors="pt").input_ids[:, :1024]
cache = DynamicCache()  # made without the model's config, it keeps every token of every layer
with torch.inference_mode():
    model(ids, past_key_values=cache, logits_to_keep=1)
rope = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
metadata = {key: str(rope[key]) for key in ["rope_theta"] if key in rope}
tensors = {key: states.contiguous() for key, states in cache_tensors(cache).items()}
save_file(tensors, "cache.safetensors", {"model": asked.model, **metadata})
