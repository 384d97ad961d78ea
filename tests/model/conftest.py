# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Tests that need torch: the environment of validation/requirements.txt, and the service."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "validation"))


@pytest.fixture(scope="session")
def bin_dir() -> Path:
    """Directory of kv-compressd and kv-compress: $KVCOMPRESS_BIN_DIR, or bin/."""
    directory = Path(os.environ.get("KVCOMPRESS_BIN_DIR", REPOSITORY / "bin"))
    if not (directory / "kv-compressd").exists():
        pytest.fail(f"no kv-compressd in {directory}: build first, or set KVCOMPRESS_BIN_DIR")
    return directory


@pytest.fixture(autouse=True)
def service(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has every test use the binaries under test, whatever the environment names."""
    monkeypatch.delenv("KVCOMPRESS_SERVER", raising=False)
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir))
    monkeypatch.setenv("KV_COMPRESS_PATH", str(bin_dir / "kv-compress"))


@pytest.fixture(scope="session")
def model() -> Any:
    """A Llama with two layers and random weights, the same in every run; float32."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config).eval()
