# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.integrations.lmcache, made by LMCache's plugin factory, with its memory objects."""

import errno
import inspect
import json
import os
import signal
from pathlib import Path

import pytest
from documents import claimed_blocks

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("lmcache", reason="lmcache is not installed")

from lmcache.v1.distributed.l2_adapters.base import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    L2AdapterInterface,
)
from lmcache.v1.distributed.l2_adapters.config import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    get_l2_adapter_config_class,
)
from lmcache.v1.distributed.l2_adapters.factory import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    create_l2_adapter_from_registry,
)
from lmcache_adapter import MakeAdapter, found, load, make, store  # noqa: E402
from lmcache_objects import (  # noqa: E402
    HEAD_DIM,
    KEY,
    LAYERS,
    LAYOUTS,
    OTHERS,
    memory,
    other_key,
    states,
)

import kvcompress  # noqa: E402
from kvcompress._foreign_files import ForeignFileError  # noqa: E402
from kvcompress.integrations._lmcache_chunks import Layout, labels_of, read  # noqa: E402
from kvcompress.integrations._lmcache_service import Parameters  # noqa: E402
from kvcompress.integrations._lmcache_store import Folder, name_of, open_store  # noqa: E402
from kvcompress.integrations.lmcache import KVCompressAdapter  # noqa: E402
from kvcompress.store import StoreOptions  # noqa: E402

__all__ = ["make"]
NAME = f"aa/{'0' * 40}.safetensors"  # of a chunk
SPLIT: dict[str, object] = {"layout": "kv", "head_dim": HEAD_DIM}


def the_artefact(tmp_path: Path) -> Path:
    """The one file of the folder."""
    [path] = (tmp_path / "cache").glob("*/*.safetensors")
    return path


def test_interface_is_lmcaches() -> None:
    """Every abstract method, with the parameters that LMCache passes by name or position."""
    assert not KVCompressAdapter.__abstractmethods__
    for name, theirs in inspect.getmembers(L2AdapterInterface, inspect.isfunction):
        ours = getattr(KVCompressAdapter, name)
        if ours is not theirs and name != "__init__":
            assert list(inspect.signature(ours).parameters) == list(
                inspect.signature(theirs).parameters
            ), name


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_chunk_comes_back(make: MakeAdapter, layout: str, dtype: str) -> None:
    """Bit for bit with lossless, after a restart too, in every layout; also several groups."""
    shape, params = LAYOUTS[layout]
    first = states(*shape, dtype=getattr(torch, dtype))
    second = first.narrow(-3, 0, 1) * 2
    source = memory(first, second)
    adapter = make(codec="lossless", **params)
    assert not found(adapter)
    assert store(adapter, source)
    other = make(codec="lossless", **params)
    assert found(other)
    restored = load(other, source)
    assert restored is not None
    assert torch.equal(restored[0], first)
    assert torch.equal(restored[1], second)
    status = other.report_status()
    assert status["is_healthy"]
    assert status["loaded"] == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_roles_come_from_the_layout(client: kvcompress.Client, layout: str) -> None:
    """Keys are distinguished from values: a view for each layer and role, and latents have none."""
    shape, params = LAYOUTS[layout]
    tensors, notation = read(memory(states(*shape)), Parameters.parse(params, storage=False).layout)
    roles = client.measure(tensors, codec="int8", layout=notation).roles
    latents = params["layout"] == "mla"
    assert (roles.keys, roles.values, roles.neither) == (
        (LAYERS, 0, LAYERS) if latents else (LAYERS, LAYERS, 0)
    )


def test_cpu_blocks_are_untangled() -> None:
    """For each block and head [head_dim, block] of keys, and then [block, head_dim] of values."""
    layers, pages, heads, block, head = 2, 3, 2, 4, 8
    wanted = states(layers, pages, heads, 2, block, head, dtype=torch.float32)
    keys, values = wanted.unbind(3)
    inside = torch.cat([keys.transpose(3, 4).flatten(3), values.flatten(3)], dim=3)
    rows = inside.view(layers, pages, heads, block, 2 * head).transpose(2, 3)
    chunk = rows.reshape(layers, pages * block, heads * 2 * head)
    layout = Layout("cpu_attn", head_dim=head, block_tokens=block)
    assert torch.equal(layout.arrange(chunk), wanted)
    target = torch.zeros_like(chunk)
    layout.rearrange(wanted, target)
    assert torch.equal(target, chunk)


def test_bytes_that_are_float8(make: MakeAdapter) -> None:
    shape, params = LAYOUTS["split"]
    chunk = states(*shape).to(torch.float8_e4m3fn).view(torch.uint8)
    source = memory(chunk)
    adapter = make(codec="lossless", element_type="float8_e4m3fn", **params)
    assert store(adapter, source)
    restored = load(adapter, source)
    assert restored is not None
    assert torch.equal(restored[0], chunk)


@pytest.mark.parametrize("field", OTHERS)
def test_artefact_of_another_key_is_a_miss(make: MakeAdapter, tmp_path: Path, field: str) -> None:
    """Found under the name of this key, as by a mistake of an operator; and removed."""
    source, adapter = memory(states(2, 1, 32, 32)), make(codec="int8", **SPLIT)
    assert store(adapter, source, key=other_key(field))
    artefact = the_artefact(tmp_path).read_bytes()
    assert load(adapter, source) is None
    assert store(adapter, source)
    for path in (tmp_path / "cache").glob("*/*.safetensors"):
        path.write_bytes(artefact)
    assert load(adapter, source) is None
    assert adapter.report_status()["damaged"] == 1
    assert not found(adapter)


@pytest.mark.parametrize("damage", [b"", b"x" * 3000, "flipped"])
def test_damage_is_a_miss(make: MakeAdapter, tmp_path: Path, damage: bytes | str) -> None:
    """Which is counted, removed, and stored again."""
    source, adapter = memory(states(2, 1, 32, 32)), make(codec="int8", **SPLIT)
    assert store(adapter, source)
    path = the_artefact(tmp_path)
    data = bytearray(path.read_bytes())
    data[-100] ^= 16
    path.write_bytes(damage if isinstance(damage, bytes) else data)
    assert found(adapter)
    assert load(adapter, source) is None
    assert adapter.report_status()["damaged"] == 1
    assert store(adapter, source)
    assert load(adapter, source) is not None


def test_other_shape_is_a_miss(make: MakeAdapter) -> None:
    adapter = make(codec="int8", **SPLIT)
    assert store(adapter, memory(states(2, 1, 32, 32)))
    assert load(adapter, memory(states(2, 1, 64, 32))) is None
    assert adapter.report_status()["damaged"] == 1


def test_wrong_layout_loses_nothing(make: MakeAdapter) -> None:
    """A mistake of the configuration stores and loads nothing, and removes nothing."""
    source, adapter = memory(states(2, 1, 32, 32)), make(codec="int8", **SPLIT)
    assert store(adapter, source)
    wrong = make(codec="int8", layout="mla", rope_dim=8)
    assert load(wrong, source) is None
    assert not store(wrong, source, key=other_key("chunk_hash"))
    assert wrong.report_status()["damaged"] == 0
    assert load(adapter, source) is not None


def test_full_disk_is_a_miss(make: MakeAdapter, tmp_path: Path) -> None:
    """No part of a file stays."""
    adapter = make(codec="int8", **SPLIT)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert not store(adapter, memory(states(2, 1, 32, 32)))
    assert adapter.report_status()["store_failures"] == 1
    assert not found(adapter)
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"ledger.json", "lock"}, "the store's own"


def test_half_a_file_is_never_there(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), StoreOptions())
    folder.write(NAME, b"first")
    folder.write(NAME, b"second")
    assert [path.name for path in (tmp_path / "aa").iterdir()] == [Path(NAME).name]
    assert folder.read(NAME, 6) == b"second"


def test_folder_that_others_write(tmp_path: Path) -> None:
    """Links are neither followed nor written through, and nothing else is waited for."""
    folder, other = Folder(str(tmp_path / "store"), StoreOptions()), tmp_path / "other"
    other.write_bytes(b"kept")
    (tmp_path / "store" / "aa").mkdir()
    place = tmp_path / "store" / NAME
    place.symlink_to(other)
    with pytest.raises(ForeignFileError, match="symbolic link"):
        folder.read(NAME, 10)
    folder.write(NAME, b"new")
    assert (folder.read(NAME, 10), other.read_bytes()) == (b"new", b"kept")
    os.truncate(place, 1 << 40)
    with pytest.raises(ForeignFileError, match="and may have 10"):
        folder.read(NAME, 10)
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(ForeignFileError):
        folder.read(NAME, 10)
    folder.write(NAME, b"new")
    assert folder.read(NAME, 10) == b"new"


def test_url_of_a_folder_is_read_as_one(tmp_path: Path) -> None:
    """By fsspec it would be waited for."""
    (tmp_path / "aa").mkdir()
    os.mkfifo(tmp_path / NAME)
    for kind in ("file", "local"):
        store = open_store(f"{kind}://{tmp_path}", {})
        with pytest.raises(ForeignFileError, match="is a FIFO"):
            store.read(NAME, 10)
    with pytest.raises(ValueError, match="is a path"):
        open_store(f"file://{tmp_path}", {"auto_mkdir": True})


def test_larger_tensors_are_a_miss_before_they_are_restored(
    make: MakeAdapter, client: kvcompress.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the labels of the chunk, which are no secret, at any size of a file."""
    source, adapter = memory(states(2, 1, 32, 32)), make(codec="int8", **SPLIT)
    assert store(adapter, source)
    large = {"group_0": torch.zeros(2, 1, 1 << 16, 32, dtype=torch.bfloat16)}
    layout, labels = f"2ltd:head_dim={HEAD_DIM}", labels_of(KEY)
    forged = client.compress(large, codec="lossless+zstd", layout=layout, labels=labels).artefact
    assert forged is not None
    monkeypatch.setattr(adapter._service, "_connected", None)
    for size in (len(forged), 1 << 40):
        (tmp_path / "cache" / name_of(labels)).write_bytes(forged)
        os.truncate(tmp_path / "cache" / name_of(labels), size)
        assert load(adapter, source) is None
        assert not found(adapter), "it will never be right"
    assert adapter.report_status()["damaged"] == 2


def test_server_that_is_gone_costs_one_timeout(make: MakeAdapter) -> None:
    """After one call without an answer, lookups find nothing and no call is tried."""
    source, adapter = memory(states(2, 1, 32, 32)), make(codec="int8", server=None, **SPLIT)
    assert store(adapter, source)
    supervisor = adapter._service._exchange.client._connection.server._process.pid
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    [child] = [
        each for each in children if "kv-compressd" in Path(f"/proc/{each}/comm").read_text()
    ]
    os.kill(int(child), signal.SIGSTOP)
    # The other threads go on until the one that takes the signal has its turn.
    while not all(
        "State:\tT" in each.read_text() for each in Path("/proc").glob(f"{child}/task/*/status")
    ):
        pass
    try:
        assert load(adapter, source) is None
        assert not found(adapter)
        assert not adapter.report_status()["is_healthy"]
        assert adapter.report_status()["unavailable"] == 1
        assert not store(adapter, source, key=other_key("chunk_hash"))
    finally:
        os.kill(int(child), signal.SIGCONT)


def test_server_of_its_own_starts_again(make: MakeAdapter) -> None:
    source = memory(states(2, 1, 32, 32))
    adapter = make(codec="int8", server=None, retry_after=0.001, **SPLIT)
    assert store(adapter, source)
    adapter._service._exchange.client._connection.server.stop()
    assert load(adapter, source) is None
    while load(adapter, source) is None:
        assert adapter.report_status()["unavailable"] < 1000


def test_any_file_system_of_fsspec(make: MakeAdapter) -> None:
    source = memory(states(2, 1, 32, 32))
    adapter = make(path=None, url="memory://kvcompress/cache", codec="int8", **SPLIT)
    assert store(adapter, source)
    assert found(adapter)
    assert load(adapter, source) is not None
    adapter.delete([KEY, other_key("chunk_hash")])
    assert not found(adapter)
    assert load(adapter, source) is None


def test_usage_follows_what_is_stored(make: MakeAdapter, tmp_path: Path) -> None:
    """It is what the folder holds, whoever has stored it, in pages."""
    adapter = make(codec="int8", **SPLIT)
    assert store(adapter, memory(states(2, 1, 32, 32)))
    size = the_artefact(tmp_path).stat().st_size
    held = -(-size // 4096) * 4096
    assert adapter.get_usage().total_bytes_used == held
    assert adapter.get_usage().bytes_by_cache_salt == {KEY.cache_salt: size}
    assert adapter.report_status()["stored_bytes"] == size
    later = make(codec="int8", **SPLIT)
    assert later.get_usage().total_bytes_used == held
    later.delete([KEY])
    assert later.get_usage().total_bytes_used == adapter.get_usage().total_bytes_used == 0
    assert store(adapter, memory(states(2, 1, 32, 32)))
    assert adapter.get_usage().bytes_by_cache_salt == {KEY.cache_salt: size}
    later.delete([KEY])
    adapter.delete([KEY])
    assert adapter.get_usage().total_bytes_used == 0
    assert not adapter.get_usage().bytes_by_cache_salt


@pytest.mark.parametrize(
    "params",
    [
        {"layout": "kv"},
        {"layout": "2ltd", "head_dim": 16},
        {"layout": "mla", "rope_dim": 8, "head_dim": 16},
        {"layout": "cpu_attn", "head_dim": 16},
        {**SPLIT, "codek": "int8"},
        {**SPLIT, "timeout": "1"},
        {**SPLIT, "timeout": 0},
        {**SPLIT, "path": None},
        {**SPLIT, "url": "memory://a"},
        {**SPLIT, "element_type": "int8"},
        {**SPLIT, "storage_options": {"key": "a"}},
        {**SPLIT, "capacity_bytes": "much"},
        {**SPLIT, "low_watermark": 2},
        {**SPLIT, "path": None, "url": "memory://a", "capacity_bytes": 1},
    ],
)
def test_mistakes_are_told_at_the_start(make: MakeAdapter, params: dict[str, object]) -> None:
    with pytest.raises((TypeError, ValueError)):
        make(**params)


def test_lines_of_the_readme(
    bin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMCache takes the configuration that the README has, with a server of its own."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir.resolve()))
    [block] = claimed_blocks("lmcache")
    [text] = [line for line in block.split("'") if "KVCompressAdapter" in line]
    spec = json.loads(text)
    spec["adapter_params"]["path"] = str(tmp_path)
    config = get_l2_adapter_config_class(spec["type"]).from_dict(spec)
    adapter = create_l2_adapter_from_registry(config, None)
    source = memory(states(LAYERS, 64, 2 * 2 * spec["adapter_params"]["head_dim"]))
    assert store(adapter, source)
    assert load(adapter, source) is not None
    adapter.close()
