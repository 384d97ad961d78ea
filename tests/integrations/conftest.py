# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of kvcompress.integrations: the real service, and a tiny model."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))

from oracle.fixtures import bin_dir, client, sample, server

HERE = Path(__file__).parent
__all__ = ["bin_dir", "client", "model", "sample", "server"]


def pytest_configure() -> None:
    """Puts LMCache behind the packages of an environment that has torch and not LMCache."""
    found = {name: importlib.util.find_spec(name) for name in ("torch", "lmcache")}
    if found["torch"] is None or found["lmcache"] is not None:
        return
    command = [HERE.parents[1] / "deploy" / "python-env", "--no-deps", HERE / "requirements.txt"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"no environment for LMCache:\n{done.stderr}", file=sys.stderr)
        return
    (packages,) = Path(done.stdout.strip()).glob("lib/python3*/site-packages")
    sys.path.append(str(packages))


@pytest.fixture(scope="session")
def model() -> Any:  # noqa: ANN401
    """A Llama with two layers and random weights, the same in every run; float32."""
    import torch  # type: ignore[import-not-found,unused-ignore]
    from transformers import (  # type: ignore[import-not-found,unused-ignore]
        LlamaConfig,
        LlamaForCausalLM,
    )

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
