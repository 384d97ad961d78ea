# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.integrations.vllm with caches of other kinds: sliding windows, FP8."""

import importlib.util
import os
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2000)]
if importlib.util.find_spec("vllm") is None:  # to import it takes long
    pytest.skip("vLLM is not installed", allow_module_level=True)

from jobs import run_engine  # noqa: E402
from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

REPOSITORY = Path(__file__).parents[2]
TOKENS = 1100
ENGINES: dict[str, tuple[str, dict[str, object]]] = {
    "windows": ("KVCOMPRESS_ENGINE_WINDOWS", {}),
    "fp8": ("KVCOMPRESS_ENGINE_MODEL", {"kv_cache_dtype": "fp8"}),
}


@pytest.mark.parametrize("kind", ENGINES)
def test_hit_with_the_same_answer(tmp_path: Path, kind: str) -> None:
    """What was computed is found without the engine's own caches, in artefacts alone."""
    variable, arguments = ENGINES[kind]
    model = os.environ[variable]
    tokenizer = Tokenizer.from_file(f"{model}/tokenizer.json")
    prompt = tokenizer.encode((REPOSITORY / "core" / "FORMAT.md").read_text()).ids[:TOKENS]
    extra = {"folder": str(tmp_path), "codec": "lossless", "timeout": 60}
    requests = [prompt, {"reset": True}, prompt]
    (computed, found), _ = run_engine(extra, requests, model, **arguments)
    assert computed["served"] == 0
    assert found["served"] >= 0.9 * TOKENS
    assert found["tokens"] == computed["tokens"]
    groups = {path.parts[len(tmp_path.parts)] for path in tmp_path.rglob("*.safetensors")}
    assert (len(groups) > 1) == (kind == "windows")
