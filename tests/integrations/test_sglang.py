# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.integrations.sglang, made by SGLang's factory, with its host pools and controller.

Not run here: SGLang's copies between a GPU and host memory, its scheduler, and several ranks.
"""

import hashlib
import inspect
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sglang_package
from small_disk import small_disk

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")
if not sglang_package.prepare():
    pytest.skip("sglang is not installed", allow_module_level=True)

import kvcompress  # noqa: E402
from kvcompress.integrations.sglang import KVCompressStorage  # noqa: E402

STORAGE = sglang_package.module("mem_cache.hicache_storage")
CONTROLLER = sglang_package.module("managers.cache_controller")
LAYERS, HEADS, HEAD_DIM, LATENT, ROPE, PAGE, PAGES = 3, 2, 16, 32, 8, 16, 6
MHA = ("layer_first", "page_first", "page_first_direct", "page_head")
MLA = ("layer_first", "page_first", "page_first_direct")
KINDS = [("mha", layout) for layout in MHA] + [("mla", layout) for layout in MLA]
KEYS = [hashlib.sha256(bytes([number])).hexdigest() for number in range(PAGES)]
Make = Callable[..., Any]


def pool_of(kind: str, layout: str, *, packed: bool = False, filled: bool = True) -> Any:  # noqa: ANN401
    """SGLang's own host pool, with random states of tokens that do not depend on the layout."""
    info = sglang_package.module("mem_cache.device_pool_info")
    base = sglang_package.module("mem_cache.pool_host.base")
    cpu, dtype, size = torch.device("cpu"), torch.bfloat16, PAGE * PAGES
    device = torch.zeros(LAYERS, size, HEADS if kind == "mha" else 1, HEAD_DIM, dtype=dtype)
    addresses = torch.zeros(LAYERS, dtype=torch.uint64)
    common = {"page_size": PAGE, "dtype": dtype, "device": cpu}
    options: dict[str, Any] = {
        "host_to_device_ratio": 1.0,
        "host_size": 0,
        "page_size": PAGE,
        "layout": layout,
        "pin_memory": False,
        "device_capacity_tokens": size - 1,
        "host_token_capacity": size,
        "start_layer": 0,
        "end_layer": LAYERS,
    }
    with base.host_memory_budget_scope(1 << 30):
        if kind == "mha":
            buffers = info.KVBuffers(
                k=tuple(device),
                v=tuple(device),
                k_data_ptrs=addresses,
                v_data_ptrs=addresses,
                layout=info.KVBufferLayout.NHD,
            )
            sizes = {"head_num": HEADS, "head_dim": HEAD_DIM, "v_head_dim": HEAD_DIM}
            described = info.MHABufferInfo(buffers=buffers, **sizes, **common)
            pool = sglang_package.module("mem_cache.pool_host.mha").MHATokenToKVPoolHost(
                described, **options
            )
            states = random_states(2, LAYERS, PAGES, PAGE, HEADS, HEAD_DIM)
        else:
            latents = torch.zeros(LAYERS, size, 1, LATENT + ROPE, dtype=dtype)
            described = info.MLABufferInfo(
                buffers=tuple(latents),
                data_ptrs=addresses,
                layer_indices=tuple(range(LAYERS)),
                device_layer_num=LAYERS,
                kv_lora_rank=LATENT,
                qk_rope_head_dim=ROPE,
                kv_cache_dim=LATENT + ROPE,
                packed_fp8=packed,
                **common,
            )
            pool = sglang_package.module("mem_cache.pool_host.mla").MLATokenToKVPoolHost(
                described, target_layer_num=LAYERS, **options
            )
            states = random_states(LAYERS, PAGES, PAGE, 1, LATENT + ROPE)
    pool.kv_buffer.copy_(in_layout(kind, layout, states) if filled else torch.zeros(()))
    return pool


def random_states(*shape: int) -> Any:  # noqa: ANN401
    """Random states."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator).to(torch.bfloat16)


def in_layout(kind: str, layout: str, states: Any) -> Any:  # noqa: ANN401
    """States [2, layers, pages, page, heads, head_dim] as a buffer; for latents without the 2."""
    order = {
        "layer_first": "lpshd",
        "page_first": "pslhd",
        "page_first_direct": "plshd",
        "page_head": "phsld",
    }[layout]
    before = 1 if kind == "mha" else 0
    axes = [*range(before), *("lpshd".index(axis) + before for axis in order)]
    ordered = states.permute(axes)
    if layout == "layer_first":
        return ordered.flatten(before + 1, before + 2)
    return ordered.flatten(before, before + 1) if layout == "page_first" else ordered


@pytest.fixture
def make(
    server: Any,  # noqa: ANN401
    bin_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Make]:
    """Makes backends as SGLang does, on one folder and one service, and closes them."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir.resolve()))
    factory = sglang_package.module("mem_cache.storage.backend_factory").StorageBackendFactory
    made = []

    def make_one(pool: Any, rank: int = 0, model: str = "org/model", **extra: object) -> Any:  # noqa: ANN401
        config = STORAGE.HiCacheStorageConfig(
            tp_rank=rank,
            tp_size=2,
            pp_rank=0,
            pp_size=1,
            attn_cp_rank=0,
            attn_cp_size=1,
            is_mla_model=hasattr(pool, "kv_lora_rank"),
            enable_storage_metrics=False,
            is_page_first_layout=pool.layout == "page_first",
            model_name=model,
            extra_config={
                "backend_name": "kvcompress",
                "module_path": "kvcompress.integrations.sglang",
                "class_name": "KVCompressStorage",
                "folder": str(tmp_path / "cache"),
                "server": server.target,
                "codec": "lossless",
                "timeout": 60,
                **extra,
            },
        )
        made.append(factory.create_backend("dynamic", config, pool))
        made[-1].register_mem_pool_host(pool)
        return made[-1]

    yield make_one
    for each in made:
        each.close()


class Controller:
    """SGLang's controller with nothing but what saves to a backend and loads from one."""

    def __init__(self, backend: Any, pool: Any, *, places: bool) -> None:  # noqa: ANN401
        """Takes a backend and a pool; `places` is for `interface_v1`."""
        own = CONTROLLER.HiCacheController
        self.controller = object.__new__(own)
        self.controller.storage_backend = backend
        self.controller.storage_host_pool = self.controller.mem_pool_host = pool
        self.controller.page_size = PAGE
        bound = self.controller
        bound.page_get_func = bound._page_get_zero_copy if places else bound._generic_page_get
        bound.page_set_func = bound._page_set_zero_copy if places else bound._generic_page_set

    def backup(self, keys: list[str]) -> int:
        """Saves the first pages of the pool; gives the tokens that SGLang hears of."""
        places = torch.arange(len(keys) * PAGE)
        operation = CONTROLLER.StorageOperation(places, [], hash_value=keys)
        self.controller._page_backup(operation)
        return int(operation.completed_tokens)

    def prefetch(self, keys: list[str]) -> int:
        """Loads pages to the beginning of the pool; gives how many."""
        operation = CONTROLLER.PrefetchOperation("request", [])
        extra = STORAGE.HiCacheStorageExtraInfo()
        places = torch.arange(len(keys) * PAGE)
        return int(self.controller._page_transfer_kv_batch(operation, keys, places, extra, []))


def page(pool: Any, index: int) -> Any:  # noqa: ANN401
    """A page of a pool, as bits."""
    return pool.get_data_page(index * PAGE).view(torch.int16)


def artefacts(tmp_path: Path) -> list[Path]:
    """All artefacts."""
    return sorted((tmp_path / "cache").glob("*/artefacts/*/*.safetensors"))


def test_interface_is_sglangs() -> None:
    """Every method that ours has in common, with SGLang's parameters in their order."""
    assert not KVCompressStorage.__abstractmethods__
    for name, theirs in inspect.getmembers(STORAGE.HiCacheStorage, inspect.isfunction):
        ours = getattr(KVCompressStorage, name)
        if ours is not theirs and name != "__init__":
            assert list(inspect.signature(ours).parameters) == list(
                inspect.signature(theirs).parameters
            ), name


@pytest.mark.parametrize("places", [False, True], ids=["rows", "places"])
@pytest.mark.parametrize(("kind", "layout"), KINDS)
def test_pages_come_back(make: Make, kind: str, layout: str, *, places: bool) -> None:
    """Bit for bit, after a restart, also some of them, in another order and from several runs."""
    source = pool_of(kind, layout)
    first = make(source, artefact_tokens=4 * PAGE)
    assert first.batch_exists(KEYS) == 0
    assert Controller(first, source, places=places).backup(KEYS) == PAGES * PAGE
    target = pool_of(kind, layout, filled=False)
    second = make(target)
    assert second.batch_exists([*KEYS, "0" * 64]) == PAGES
    wanted = [5, 2, 3]
    controller = Controller(second, target, places=places)
    assert controller.prefetch([KEYS[index] for index in wanted]) == len(wanted)
    for place, index in enumerate(wanted):
        assert torch.equal(page(target, place), page(source, index))
    assert not page(target, 4).any()
    assert controller.prefetch([KEYS[0], "0" * 64, KEYS[1]]) == 1


@pytest.mark.parametrize(("kind", "layout"), [("mha", "page_head"), ("mla", "page_first")])
def test_another_layout_hits(make: Make, kind: str, layout: str) -> None:
    """Artefacts do not depend on the order in memory."""
    source, target = pool_of(kind, layout), pool_of(kind, "layer_first", filled=False)
    assert all(make(source).batch_set_v1(KEYS, torch.arange(PAGES * PAGE)))
    assert all(make(target).batch_get_v1(KEYS, torch.arange(PAGES * PAGE)))
    assert torch.equal(target.kv_buffer, pool_of(kind, "layer_first").kv_buffer)


@pytest.mark.parametrize("kind", ["mha", "mla"])
def test_artefacts_have_roles_and_are_smaller(
    client: kvcompress.Client, make: Make, tmp_path: Path, kind: str
) -> None:
    """Keys, values and latents are told from each other, and a lossy codec takes them."""
    pool = pool_of(kind, "page_first")
    backend = make(pool, codec="int4-hadamard")
    assert all(backend.batch_set_v1(KEYS, torch.arange(PAGES * PAGE)))
    [artefact] = artefacts(tmp_path)
    result = client.decompress(artefact)
    names = [f"layer_{layer}" for layer in range(LAYERS)]
    if kind == "mha":
        names = sorted(f"{name}_{end}" for name in names for end in ("key", "value"))
    assert sorted(result.torch_tensors()) == names
    status = backend.report_status()
    assert status["saved"] == PAGES
    assert status["source_bytes"] > 2 * status["saved_bytes"]


def test_tokens_of_an_artefact_follow_one_another(make: Make, tmp_path: Path) -> None:
    """What is there already ends a run, and is not saved again."""
    pool = pool_of("mha", "page_first")
    backend = make(pool)
    assert backend.set(KEYS[2], pool.get_data_page(2 * PAGE))
    assert all(backend.batch_set_v1(KEYS, torch.arange(PAGES * PAGE)))
    assert backend.report_status()["saved"] == PAGES
    assert len(artefacts(tmp_path)) == 3


def test_ranks_and_models_are_apart(make: Make) -> None:
    """Heads of one rank are nothing to another; latents are the same for all."""
    places = torch.arange(PAGES * PAGE)
    heads, latents = pool_of("mha", "page_first"), pool_of("mla", "page_first")
    assert all(make(heads).batch_set_v1(KEYS, places))
    assert all(make(latents).batch_set_v1(KEYS, places))
    assert make(heads, rank=1).batch_exists(KEYS) == 0
    assert make(latents, rank=1).batch_exists(KEYS) == PAGES
    assert make(heads, model="org/other").batch_exists(KEYS) == 0
    assert make(heads, identity={"revision": "2"}).batch_exists(KEYS) == 0


def test_damage_is_a_miss_and_stored_anew(make: Make, tmp_path: Path) -> None:
    """What was damaged is not there any more, and the pool stays as it was."""
    places = torch.arange(PAGES * PAGE)
    source, target = pool_of("mha", "page_first"), pool_of("mha", "page_first", filled=False)
    assert all(make(source).batch_set_v1(KEYS, places))
    for path in artefacts(tmp_path):
        data = bytearray(path.read_bytes())
        data[-100] ^= 1
        path.write_bytes(data)
    backend = make(target)
    assert not any(backend.batch_get_v1(KEYS, places))
    assert not target.kv_buffer.any()
    assert backend.report_status()["damaged"] == 1
    assert backend.batch_exists(KEYS) == 0
    assert backend.get(KEYS[0]) is None
    assert all(make(source).batch_set_v1(KEYS, places))
    assert all(backend.batch_get_v1(KEYS, places))


def test_artefact_of_another_model_is_a_miss(make: Make, tmp_path: Path) -> None:
    """In the place of the right one, as by a mistake of an operator."""
    places, pool = torch.arange(PAGES * PAGE), pool_of("mha", "page_first")
    assert all(make(pool, model="org/other").batch_set_v1(KEYS, places))
    [other] = artefacts(tmp_path)
    backend = make(pool)
    assert all(backend.batch_set_v1(KEYS, places))
    [mine] = set(artefacts(tmp_path)) - {other}
    mine.write_bytes(other.read_bytes())
    assert not any(backend.batch_get_v1(KEYS, places))
    assert backend.report_status()["damaged"] == 1


def test_full_disk(make: Make, tmp_path: Path) -> None:
    """Nothing is stored, in whole or in part, until there is room again."""
    places, pool = torch.arange(PAGES * PAGE), pool_of("mha", "page_first")
    with small_disk(tmp_path / "cache") as enlarge:
        backend = make(pool)
        assert not any(backend.batch_set_v1(KEYS, places))
        assert backend.report_status()["failed"] == 1
        assert backend.batch_exists(KEYS) == 0
        files = [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()]
        assert files == ["identity.json"]
        enlarge()
        assert all(backend.batch_set_v1(KEYS, places))
        assert all(backend.batch_get_v1(KEYS, places))


def test_without_a_service_nothing_is_there(make: Make) -> None:
    """Nobody waits: a backend whose server was killed finds nothing, and saves nothing."""
    pool = pool_of("mha", "page_first")
    backend = make(pool, server=None)
    assert backend.set(KEYS[0], pool.get_data_page(0))
    assert backend.exists(KEYS[0])
    os.killpg(backend._backend.service.client()._connection.server._process.pid, signal.SIGKILL)
    assert backend.get(KEYS[0]) is None
    assert not backend.exists(KEYS[0])
    assert not backend.set(KEYS[1], pool.get_data_page(PAGE))
    assert backend.report_status()["unavailable"] >= 1


def test_pools_beside_keys_and_values(make: Make) -> None:
    """Packed values are kept as bytes, whatever the codec; a prefix needs what their rule says."""
    main, packed = pool_of("mla", "page_first"), pool_of("mla", "page_first", packed=True)
    backend = make(main, codec="int8")
    backend.register_mem_host_pool_v2(main, STORAGE.PoolName.KV)
    backend.register_mem_host_pool_v2(packed, STORAGE.PoolName.INDEXER)
    transfer = STORAGE.PoolTransfer
    places = torch.arange(PAGES * PAGE)
    behind = places[4 * PAGE :]
    moved = backend.batch_set_v2(
        [
            transfer(STORAGE.PoolName.KV, host_indices=places, keys=KEYS),
            transfer(STORAGE.PoolName.INDEXER, host_indices=behind, keys=KEYS[4:]),
        ]
    )
    assert moved == {"kv": [True] * PAGES, "indexer": [True] * 2}

    def found(policy: Any, keys: list[str]) -> Any:  # noqa: ANN401
        asked = transfer(STORAGE.PoolName.INDEXER, keys=keys, hit_policy=policy)
        return backend.batch_exists_v2(KEYS, [asked])

    policies = STORAGE.PoolHitPolicy
    assert found(policies.ALL_PAGES, KEYS).kv_hit_pages == 0
    trailing = found(policies.TRAILING_PAGES, KEYS[-1:])
    assert (trailing.kv_hit_pages, trailing.restorable_prefix_pages) == (PAGES, [5, 6])
    assert found(policies.TRAILING_PAGES, KEYS[-2:]).restorable_prefix_pages == [6]
    with pytest.raises(ValueError, match="indexer"):
        found(policies.BLOCK_GROUPS, KEYS)

    before = packed.kv_buffer.clone()
    packed.kv_buffer.zero_()
    got = backend.batch_get_v2([transfer("indexer", host_indices=behind, keys=KEYS[4:])])
    assert got == {"indexer": [True, True]}
    assert torch.equal(packed.kv_buffer[4 * PAGE :], before[4 * PAGE :])
    assert backend.batch_get_v2([transfer("indexer", host_indices=behind, keys=KEYS)]) == {
        "indexer": [False] * PAGES
    }


@pytest.mark.parametrize(
    ("extra", "error", "message"),
    [
        ({"codek": "klt"}, TypeError, "codek"),
        ({"threads": 0}, ValueError, "threads"),
        ({"element_type": "float7"}, ValueError, "float7"),
        ({"model": ""}, ValueError, "identity"),
    ],
)
def test_configuration_errors(
    make: Make, extra: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make(pool_of("mha", "page_first"), **extra)


def test_layout_that_is_not_known(make: Make) -> None:
    """Refused when the pool is registered, with those that are known."""
    pool = pool_of("mha", "page_first")
    pool.layout = "page_unified"
    with pytest.raises(ValueError, match=r"hicache-mem-layout.*page_head"):
        make(pool)
