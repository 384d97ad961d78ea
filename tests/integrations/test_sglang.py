# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.integrations.sglang, made by SGLang's factory, with its host pools and controller.

Not run here: SGLang's copies between a GPU and host memory, its scheduler, and several ranks.
"""

import inspect
import json
import os
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
import sglang_package
from documents import claimed_blocks
from small_disk import small_disk

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")
if not sglang_package.prepare():
    pytest.skip("sglang is not installed", allow_module_level=True)

from sglang_pools import (  # noqa: E402
    KEYS,
    KINDS,
    LAYERS,
    PAGE,
    PAGES,
    STORAGE,
    Controller,
    Make,
    artefacts,
    make,
    page,
    pool_of,
)

import kvcompress  # noqa: E402
from kvcompress.integrations.sglang import KVCompressStorage  # noqa: E402

__all__ = ["make"]
ARGUMENTS = Path(sglang_package.module("arg_groups").__path__[0])


def test_interface_is_sglangs() -> None:
    """Every method that ours has in common, with SGLang's parameters in their order."""
    assert not KVCompressStorage.__abstractmethods__
    for name, theirs in inspect.getmembers(STORAGE.HiCacheStorage, inspect.isfunction):
        ours = getattr(KVCompressStorage, name)
        if ours is not theirs and name != "__init__":
            assert list(inspect.signature(ours).parameters) == list(
                inspect.signature(theirs).parameters
            ), name


def test_line_of_the_guide(make: Make, server: Any, tmp_path: Path) -> None:  # noqa: ANN401
    """SGLang has its options, and its factory makes the backend with its configuration."""
    [block] = claimed_blocks("sglang")
    command, configuration, _ = block.split("'")
    own = {"folder": str(tmp_path / "guide"), "server": server.target}
    backend = make(pool_of("mha", "page_first"), **{**json.loads(configuration), **own})
    places = torch.arange(PAGES * PAGE)
    assert all(backend.batch_set_v1(KEYS, places))
    assert backend.batch_exists(KEYS) == PAGES
    assert len(list((tmp_path / "guide").glob("*/artefacts/*/*.safetensors"))) == 1
    known = sglang_package.options()
    assert {name.replace("-", "_") for name in re.findall(r"--([a-z-]+)", command)} <= known


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
    """Keys, values and latents are distinguished, and a lossy codec takes them."""
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
    """Nothing is stored, in whole or in part, until there is space again."""
    places, pool = torch.arange(PAGES * PAGE), pool_of("mha", "page_first")
    with small_disk(tmp_path / "cache") as enlarge:
        backend = make(pool)
        assert not any(backend.batch_set_v1(KEYS, places))
        assert backend.report_status()["failed"] == 1
        assert backend.batch_exists(KEYS) == 0
        files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
        assert {path.name for path in files} <= {"identity.json", "ledger.json", "lock"}
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


def test_block_of_the_readme(make: Make, tmp_path: Path) -> None:
    """Its configuration is one that SGLang's factory takes, and its flags are SGLang's."""
    [block] = claimed_blocks("sglang, in short")
    command = shlex.split(block.replace("/cache", str(tmp_path / "readme")))
    given = dict(zip(command[3::2], command[4::2], strict=False))
    assert command[:3] == ["python", "-m", "sglang.launch_server"]
    extra = json.loads(command[-1])
    assert command[-2] == "--hicache-storage-backend-extra-config"
    source = "".join(path.read_text() for path in ARGUMENTS.rglob("*.py"))
    flags = [word for word in command if word.startswith("--")]
    assert len(flags) == 5
    for flag in flags:
        assert f"    {flag[2:].replace('-', '_')}: " in source, flag
    assert given["--model-path"] == "MODEL"
    pool = pool_of("mha", "page_first")
    backend = make(pool, **extra)
    assert all(backend.batch_set_v1(KEYS, torch.arange(PAGES * PAGE)))
    assert list((tmp_path / "readme").glob("*/artefacts/*/*.safetensors"))


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
    pool.layout = "page_first_kv_split"
    with pytest.raises(ValueError, match=r"hicache-mem-layout.*page_head"):
        make(pool)
