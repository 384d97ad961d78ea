# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.integrations.vllm, driven as a scheduler and its workers drive a connector.

vLLM itself is not run: it needs a GPU, or a build of its own for CPUs. Where it is not
installed, a module stands in for its base class, with nothing but the constructor and the
metadata of one step. Attributes have the names, and views the layout, of vLLM 0.33.
"""

import enum
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")

BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base"
LAYERS, HEADS, SIZE, DIM, BLOCKS = 3, 2, 4, 8, 12


class Role(enum.Enum):
    """What a connector is."""

    SCHEDULER = 0
    WORKER = 1


class StandIn:
    """The part of vLLM's base class that a connector uses."""

    def __init__(self, vllm_config: object, role: Role, kv_cache_config: object) -> None:
        """Takes what vLLM gives."""

    def bind_connector_metadata(self, metadata: object) -> None:
        """Takes what the scheduler asks for."""
        self._metadata = metadata

    def _get_connector_metadata(self) -> object:
        """Gives what the scheduler asks for."""
        return self._metadata


class FullAttentionSpec(SimpleNamespace):
    """What vLLM says of layers that see every token."""


@pytest.fixture(scope="module")
def module() -> Iterator[Any]:
    """The module of the connector."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            import vllm.distributed.kv_transfer.kv_connector.v1.base  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
        except ImportError:
            parts = BASE.split(".")
            for end in range(1, len(parts) + 1):
                patch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(parts[end - 1]))
            base: Any = sys.modules[BASE]
            base.KVConnectorBase_V1, base.KVConnectorRole = StandIn, Role
            base.KVConnectorMetadata = object
        import kvcompress.integrations.vllm as module

        yield module


Make = Callable[..., Any]


@pytest.fixture
def make(module: Any, server: Any, tmp_path: Path) -> Iterator[Make]:  # noqa: ANN401
    """Makes connectors of one engine."""
    made = []

    def make(role: str, model: str = "m", spec: Any = None, **extra: Any) -> Any:  # noqa: ANN401
        spec = spec or FullAttentionSpec(
            block_size=SIZE, head_size=DIM, head_size_v=DIM, dtype=torch.float32
        )
        names = [f"model.layers.{i}.self_attn.attn" for i in range(LAYERS)]
        caches = SimpleNamespace(
            kv_cache_groups=[SimpleNamespace(layer_names=names, kv_cache_spec=spec)]
        )
        settings = {"folder": str(tmp_path), "server": server.target, "codec": "lossless", **extra}
        config = SimpleNamespace(
            kv_transfer_config=SimpleNamespace(kv_connector_extra_config=settings),
            parallel_config=SimpleNamespace(world_size=1, rank=0),
            model_config=SimpleNamespace(model=model, revision=None),
        )
        kind = module.KVConnectorRole[role]
        made.append(module.KVCompressConnector(config, kind, kv_cache_config=caches))
        return made[-1]

    yield make
    for connector in made:
        connector.shutdown()


def views(seed: int) -> dict[str, Any]:
    """The paged caches of all layers, [blocks, heads, block_size, K and V]."""
    generator = torch.Generator().manual_seed(seed)
    return {
        f"model.layers.{i}.self_attn.attn": torch.randn(
            BLOCKS, HEADS, SIZE, 2 * DIM, generator=generator
        )
        for i in range(LAYERS)
    }


def request(name: str, tokens: list[int], blocks: list[int], computed: int = 0) -> Any:  # noqa: ANN401
    """A request, as the connector sees it before and after it is scheduled."""
    return SimpleNamespace(
        request_id=name,
        req_id=name,
        prompt_token_ids=tokens,
        block_ids=(blocks,),
        num_computed_tokens=computed,
        mm_features=[],
        lora_request=None,
    )


def step(
    new: list[Any],
    scheduled: dict[str, int],
    cached: list[tuple[str, list[int], int]] | None = None,
) -> Any:  # noqa: ANN401
    """What the scheduler decided for a step."""
    rows = cached or []
    return SimpleNamespace(
        scheduled_new_reqs=new,
        num_scheduled_tokens=scheduled,
        finished_req_ids=set(),
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=[name for name, _, _ in rows],
            resumed_req_ids=set(),
            new_block_ids=[(blocks,) for _, blocks, _ in rows],
            num_computed_tokens=[computed for _, _, computed in rows],
        ),
    )


def forward(worker: Any, transfers: Any, caches: dict[str, Any]) -> None:  # noqa: ANN401
    """What a worker calls in one step."""
    worker.bind_connector_metadata(transfers)
    layers = {name: SimpleNamespace(kv_cache=cache) for name, cache in caches.items()}
    worker.start_load_kv(SimpleNamespace(no_compile_layers=layers))
    for name, cache in caches.items():
        worker.wait_for_layer_load(name)
        worker.save_kv_layer(name, cache, None)
    worker.wait_for_save()


PROMPT = list(range(100, 114))  # 14 tokens: three whole blocks of 4 before the last token


def save(make: Make) -> dict[str, Any]:
    """Has PROMPT computed in two steps, and saved."""
    scheduler, worker, caches = make("SCHEDULER"), make("WORKER"), views(1)
    first = request("a", PROMPT, [7, 2])
    assert scheduler.get_num_new_matched_tokens(first, 0) == (0, False)
    scheduler.update_state_after_alloc(first, None, 0)
    forward(worker, scheduler.build_connector_meta(step([first], {"a": 8})), caches)
    assert scheduler.get_num_new_matched_tokens(first, 0) == (0, False)
    later = step([], {"a": 6}, [("a", [5, 9], 8)])
    forward(worker, scheduler.build_connector_meta(later), caches)
    return caches


@pytest.mark.parametrize("computed", [0, 4])
def test_prompt_is_loaded_by_another_engine(make: Make, computed: int) -> None:
    """Into other blocks; those that the engine has itself stay as they are."""
    saved = save(make)
    scheduler, worker, caches = make("SCHEDULER"), make("WORKER"), views(2)
    before = {name: cache.clone() for name, cache in caches.items()}
    again = request("b", [*PROMPT, 1], [0, 11, 4, 3], computed)
    missing = 12 - computed
    assert scheduler.get_num_new_matched_tokens(again, computed) == (missing, False)
    scheduler.update_state_after_alloc(again, None, missing)
    forward(worker, scheduler.build_connector_meta(step([again], {"b": 3})), caches)
    assert worker.get_block_ids_with_load_errors() == set()
    pairs = list(zip([0, 11, 4], [7, 2, 5], strict=True))
    for name, cache in caches.items():
        for place, (target, origin) in enumerate(pairs):
            source = before[name][target] if place < computed // SIZE else saved[name][origin]
            assert torch.equal(cache[target], source)
        others = [block for block in range(BLOCKS) if block not in (0, 11, 4)]
        assert torch.equal(cache[others], before[name][others])


def test_other_prompts_and_models_are_not_found(make: Make) -> None:
    save(make)
    other = request("b", [*PROMPT[:11], 5, 6, 7], [0, 1, 2, 3])
    assert make("SCHEDULER").get_num_new_matched_tokens(other, 0) == (0, False)
    same = request("c", PROMPT, [0, 1, 2, 3])
    assert make("SCHEDULER", "another").get_num_new_matched_tokens(same, 0) == (0, False)
    same.lora_request = object()
    assert make("SCHEDULER").get_num_new_matched_tokens(same, 0) == (0, False)


@pytest.mark.parametrize("damage", ["bit", "cut", "gone"])
def test_blocks_that_cannot_be_loaded_are_reported(make: Make, tmp_path: Path, damage: str) -> None:
    save(make)
    scheduler, worker, caches = make("SCHEDULER"), make("WORKER"), views(2)
    before = {name: cache.clone() for name, cache in caches.items()}
    again = request("b", PROMPT, [0, 11, 4, 3])
    scheduler.update_state_after_alloc(again, None, 12)
    transfers = scheduler.build_connector_meta(step([again], {"b": 2}))
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    path.unlink()
    if damage != "gone":
        data[-9] ^= 2
        path.write_bytes(data[: None if damage == "bit" else -9])
    forward(worker, transfers, caches)
    assert worker.get_block_ids_with_load_errors() == {0, 11, 4}
    assert worker.get_block_ids_with_load_errors() == set()
    assert all(torch.equal(caches[name], before[name]) for name in caches)


def test_layers_that_are_not_supported(make: Make) -> None:
    packed = FullAttentionSpec(block_size=4, head_size=8, head_size_v=8, dtype=torch.uint8)
    with pytest.raises(ValueError, match="only dense"):
        make("SCHEDULER", spec=packed)
    sliding = SimpleNamespace(block_size=4, head_size=8, head_size_v=8, dtype=torch.float16)
    with pytest.raises(ValueError, match="layers are not supported"):
        make("SCHEDULER", spec=sliding)
