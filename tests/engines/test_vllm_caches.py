# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.integrations.vllm with caches of other kinds: sliding windows, FP8, MLA."""

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2000)]
if importlib.util.find_spec("vllm") is None:  # to import it takes long
    pytest.skip("vLLM is not installed", allow_module_level=True)

from jobs import run_engine  # noqa: E402
from mla_model import LATENT, LAYERS, ROPE, make_model  # noqa: E402
from processes import GENERATED  # noqa: E402
from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

from kvcompress import payload  # noqa: E402

REPOSITORY = Path(__file__).parents[2]
TOKENS = 1100
AGREED = 8  # tokens, in bfloat16
ENGINES: dict[str, tuple[str, int, dict[str, str]]] = {
    "windows": ("KVCOMPRESS_ENGINE_WINDOWS", AGREED, {}),
    "fp8": ("KVCOMPRESS_ENGINE_MODEL", AGREED, {"kv_cache_dtype": "fp8"}),
    "float32": ("KVCOMPRESS_ENGINE_MODEL", GENERATED, {"dtype": "float32"}),
}


def hit(
    folder: Path, model: str, same: int, **arguments: str
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Computes a prompt, then finds it in the engine's memory, then in artefacts alone.

    Every token after the artefacts is the one after the memory. The engine that computes returns
    the `same` first ones at least. Then it may differ, for it computes a prompt in one piece, and
    after any hit its end alone.
    """
    tokenizer = Tokenizer.from_file(f"{model}/tokenizer.json")
    prompt = tokenizer.encode((REPOSITORY / "core" / "FORMAT.md").read_text()).ids[:TOKENS]
    extra = {"folder": str(folder), "codec": "lossless", "timeout": 60}
    requests = [prompt, {"reset": False}, prompt, {"reset": True}, prompt]
    (computed, resumed, found), _ = run_engine(extra, requests, model, **arguments)
    assert computed["served"] == 0
    assert found["served"] == resumed["served"] >= 0.9 * TOKENS
    assert len(computed["tokens"]) == GENERATED
    assert found["tokens"] == resumed["tokens"]
    assert found["tokens"][:same] == computed["tokens"][:same]
    return computed, resumed, found


@pytest.mark.parametrize("kind", ENGINES)
def test_hit_with_the_same_answer(tmp_path: Path, kind: str) -> None:
    """What was computed is found without the engine's own caches, in artefacts alone."""
    if kind == "fp8" and "avx512f" not in Path("/proc/cpuinfo").read_text().split():
        pytest.skip("vLLM needs AVX-512 for FP8 caches, and this processor has none")
    variable, same, arguments = ENGINES[kind]
    hit(tmp_path, os.environ[variable], same, **arguments)
    groups = {path.parts[len(tmp_path.parts)] for path in tmp_path.rglob("*.safetensors")}
    assert (len(groups) > 1) == (kind == "windows")


def test_hit_with_latents(tmp_path: Path) -> None:
    """With MLA artefacts have the latents apart from the part with a rotary embedding.

    vLLM 0.32 turns its own prefix caching off for MLA on CPUs. After a hit, in memory too, it goes
    on otherwise than when it computes, in float32 as well; with random weights that shows early.
    """
    folder, tier = tmp_path / "model", tmp_path / "tier"
    make_model(folder, Path(os.environ["KVCOMPRESS_ENGINE_MODEL"]))
    computed, *_ = hit(tier, str(folder), same=1, dtype="float32")
    assert len(set(computed["tokens"])) > GENERATED // 2, "what is generated depends on the cache"
    headers = [payload.read_header(path.read_bytes()) for path in tier.rglob("*.safetensors")]
    widths = {entry.shape[-1] for header in headers for entry in header.tensors}
    assert widths == {LATENT, ROPE}
    assert {len(header.tensors) for header in headers} == {2 * LAYERS}
