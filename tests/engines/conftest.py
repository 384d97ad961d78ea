# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Tests with real engines: only `tests/engines/run` has an environment for them."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Daemon

sys.path.append(str(Path(__file__).parents[1] / "deploy"))

collect_ignore_glob = [] if importlib.util.find_spec("vllm") else ["test_*.py"]


@pytest.fixture(scope="session")
def model() -> str:
    """The folder of SmolLM2-135M in bfloat16, as Hugging Face has it."""
    return os.environ["KVCOMPRESS_ENGINE_MODEL"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A server of a module, which its tests may kill."""
    with Daemon(tmp_path_factory.mktemp("server")) as daemon:
        yield daemon
