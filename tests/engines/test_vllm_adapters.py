# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A LoRA adapter that is trained further at its path, in vLLM; and what LMCache knows of adapters.

vLLM's hashes of blocks have an adapter's name and path. LMCache's keys have neither.
"""

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
if importlib.util.find_spec("vllm") is None:  # to import it takes long
    pytest.skip("vLLM is not installed", allow_module_level=True)

import torch  # noqa: E402
from jobs import run_job  # noqa: E402
from safetensors.torch import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    save_file,
)
from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

REPOSITORY = Path(__file__).parents[2]
TOKENS, RANK = 400, 8
LEAST_HIT = 256  # tokens


def train(folder: Path, model: Path, seed: int) -> None:
    """Writes an adapter of all layers' values; its files have the same sizes with every seed."""
    config = json.loads((model / "config.json").read_text())
    heads, width = config["num_key_value_heads"], config["head_dim"]
    numbers = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.v_proj"
        for part, shape in (
            ("lora_A", (RANK, config["hidden_size"])),
            ("lora_B", (heads * width, RANK)),
        ):
            values = torch.randn(shape, generator=numbers) * 0.05
            tensors[f"{name}.{part}.weight"] = values.to(torch.bfloat16)
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": ["v_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(settings))


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_other_adapter_at_the_same_path(tmp_path: Path) -> None:
    """Engines of the first one hit; one of another computes, and says what it says alone."""
    model = Path(os.environ["KVCOMPRESS_ENGINE_MODEL"])
    adapter = tmp_path / "adapter"
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    text = (REPOSITORY / "core" / "FORMAT.md").read_text()
    prompts = [tokenizer.encode(text).ids[:TOKENS], {"reset": True}]
    extra = {"folder": str(tmp_path / "cache"), "codec": "lossless", "timeout": 60}
    arguments = {"enable_lora": True, "max_lora_rank": RANK}

    def served(extra: dict[str, object] | None) -> tuple[int, list[int]]:
        job: dict[str, Any] = {"arguments": arguments, "adapter": str(adapter)}
        [result] = run_job(extra, prompts, **job)["results"]
        return result["served"], result["tokens"]

    train(adapter, model, seed=1)
    assert served(extra)[0] == 0
    hit, before = served(extra)
    assert hit >= LEAST_HIT
    train(adapter, model, seed=2)
    again, after = served(extra)
    assert again == 0
    assert (again, after) == served(None)
    assert after != before
    identities = [json.loads(path.read_text()) for path in tmp_path.glob("cache/*/identity.json")]
    adapters = [each["adapter"] for each in identities if "adapter" in each]
    assert len(adapters) == len(set(adapters)) == 2


def test_lmcache_knows_no_adapter() -> None:
    """Its keys are of tokens and the salt of a request: the salt has to tell, as the guide says.

    Where this changes, so does what the guide says.
    """
    from lmcache.integration.vllm.lmcache_mp_metadata import (  # type: ignore[import-not-found,unused-ignore]
        LMCacheMPRequestTracker,
    )
    from vllm import SamplingParams  # type: ignore[import-not-found,unused-ignore]
    from vllm.lora.request import LoRARequest  # type: ignore[import-not-found,unused-ignore]
    from vllm.v1.request import Request  # type: ignore[import-not-found,unused-ignore]

    def key(adapter: str | None, salt: str | None = None) -> dict[str, object]:
        request = Request(
            request_id="request",
            prompt_token_ids=[*range(TOKENS)],
            sampling_params=SamplingParams(max_tokens=1),
            pooling_params=None,
            lora_request=None if adapter is None else LoRARequest("adapter", 1, adapter),
            cache_salt=salt,
        )
        tracker = LMCacheMPRequestTracker(request)
        return {**vars(tracker), "all_token_ids": [*tracker.get_token_ids()]}

    assert key("/a") == key("/b") == key(None)
    assert key("/a", "version 1") != key("/a", "version 2")
