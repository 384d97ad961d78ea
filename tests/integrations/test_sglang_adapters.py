# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""LoRA adapters in SGLang: its hashes of pages have name and path, and the backend the weights."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sglang_package

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")
if not sglang_package.prepare():
    pytest.skip("sglang is not installed", allow_module_level=True)

from sglang_pools import KEYS, PAGE, PAGES, Make, artefacts, make, pool_of  # noqa: E402

from kvcompress.integrations._sglang_identity import named_paths  # noqa: E402

__all__ = ["make"]
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def adapter(folder: Path, weights: bytes) -> str:
    """Makes a folder of an adapter; returns its path."""
    folder.mkdir(exist_ok=True)
    (folder / WEIGHTS).write_bytes(weights)
    (folder / CONFIG).write_text('{"r": 8}')
    return str(folder)


def test_page_of_an_adapter(tmp_path: Path) -> None:
    """SGLang's hashes tell adapters apart by name and path, and no more of those that it lists."""
    registry, hashes = (sglang_package.module(n) for n in ("lora.lora_registry", "mem_cache.utils"))
    listed = registry.LoRARef.deterministic_id
    seeds = {
        hashes.storage_namespace_seed(extra_key, None)
        for extra_key in (None, listed("a", "/a"), listed("b", "/a"), listed("a", "/b"))
    }
    assert len(seeds) == 4
    assert listed("a", "/a") == listed("a", "/a")
    assert registry.LoRARef(lora_name="a").lora_id != registry.LoRARef(lora_name="a").lora_id


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (["a=/x", "/y", {"lora_name": "b", "lora_path": "/z"}], ["a=/x", "/y=/y", "b=/z"]),
        ({"a": "/x", "b": "/y"}, ["a=/x", "b=/y"]),
        (None, []),
    ],
    ids=["list", "mapping", "none"],
)
def test_forms_of_the_list(
    listed: Any,  # noqa: ANN401
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What SGLang itself makes of them, of which we are given what was typed."""
    hook = sglang_package.module("arg_groups.lora_hook")
    arguments: Any = SimpleNamespace(
        lora_paths=listed,
        enable_lora=True,
        max_loras_per_batch=8,
        max_loaded_loras=None,
        max_lora_chunk_size=None,
        max_lora_rank=8,
        lora_target_modules=["q_proj"],
        lora_backend="triton",
        enable_lora_overlap_loading=False,
        lora_use_virtual_experts=False,
        lora_drain_wait_threshold=0.0,
    )
    parsed: dict[str, Any] = {}
    monkeypatch.setattr(hook, "resolving_view", lambda given: given)
    monkeypatch.setattr(hook, "declare_resolution", lambda *_, **found: parsed.update(found))
    for name in ("check_lora_moe_runner_args", "check_lora_speculative_compatibility"):
        monkeypatch.setattr(hook, name, lambda _: None)
    hook.check_lora_server_args(arguments)
    theirs = [(each.lora_name, each.lora_path) for each in parsed["lora_paths"]]
    assert list(named_paths(listed)) == list(named_paths(parsed["lora_paths"])) == theirs
    assert ["=".join(each) for each in theirs] == expected


def test_adapter_that_is_trained_further_at_its_path(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of the weights before are misses; an engine without adapters has its own folder."""
    context = sglang_package.module("runtime_context")
    pool, places = pool_of("mha", "page_first"), torch.arange(PAGES * PAGE)

    def engine(*listed: str) -> Any:  # noqa: ANN401
        arguments = SimpleNamespace(
            model_path="org/tiny", revision="0" * 40, lora_paths=[*listed] or None
        )
        monkeypatch.setattr(context.get_server_args, "return_value", arguments)
        return make(pool)

    path = adapter(tmp_path / "adapter", bytes(100_000))
    assert all(engine(f"tuned={path}").batch_set_v1(KEYS, places))
    assert engine(f"tuned={path}").batch_exists(KEYS) == PAGES
    assert len(artefacts(tmp_path)) == 1
    assert engine().batch_exists(KEYS) == 0
    assert engine(f"other={path}").batch_exists(KEYS) == 0
    adapter(tmp_path / "adapter", b"\x01" + bytes(99_999))
    assert engine(f"tuned={path}").batch_exists(KEYS) == 0


def test_adapter_of_which_nothing_is_known(
    make: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A warning says so, and what to do."""
    arguments = SimpleNamespace(model_path="org/tiny", revision="0" * 40, lora_paths=["org/none"])
    context = sglang_package.module("runtime_context")
    monkeypatch.setattr(context.get_server_args, "return_value", arguments)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    make(pool_of("mha", "page_first"))
    assert "nothing says which weights the adapter org/none has" in caplog.text
