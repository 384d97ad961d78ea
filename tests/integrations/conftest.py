# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of kvcompress.integrations: the real service, and a tiny model."""

import importlib.util
import os
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
    """Puts LMCache and Ray behind the packages of an environment that has torch and not these."""
    found = {name: importlib.util.find_spec(name) for name in ("torch", "lmcache")}
    if found["torch"] is None or found["lmcache"] is not None:
        return
    command: list[str | Path] = [
        HERE.parents[1] / "deploy" / "python-env",
        "--no-deps",
        HERE / "requirements.txt",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"no environment for LMCache and Ray:\n{done.stderr}", file=sys.stderr)
        return
    (packages,) = Path(done.stdout.strip()).glob("lib/python3*/site-packages")
    sys.path.append(str(packages))
    # For the processes that Ray starts.
    behind = [path for path in (os.environ.get("PYTHONPATH"), str(packages)) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join(behind)


@pytest.fixture(scope="session")
def model() -> Any:  # noqa: ANN401
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
