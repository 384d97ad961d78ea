# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.integrations.lmcache_serde under LMCache's own `fs` adapter, as LMCache makes both."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from documents import claimed_blocks

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("lmcache", reason="lmcache is not installed")

from lmcache.v1.distributed.api import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    MemoryLayoutDesc,
)
from lmcache.v1.distributed.l2_adapters.config import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    get_l2_adapter_config_class,
)
from lmcache.v1.distributed.l2_adapters.factory import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    create_l2_adapter_from_registry,
)
from lmcache.v1.distributed.serde import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    SerdeConfig,
    create_serde_processor,
    serialized_layout_desc,
)
from lmcache_objects import (  # noqa: E402
    HEAD_DIM,
    KEY,
    LAYOUTS,
    OTHERS,
    finish,
    memory,
    other_key,
    states,
    zeros_like,
)

from kvcompress import Client  # noqa: E402
from kvcompress.errors import FailedPreconditionError  # noqa: E402
from kvcompress.integrations._lmcache_service import Service  # noqa: E402
from kvcompress.integrations.lmcache_serde import ladder  # noqa: E402

KV = {"layout": "kv", "head_dim": HEAD_DIM}
CHUNK = (2, 4, 128, 2 * HEAD_DIM)


class Stock:
    """LMCache's `fs` adapter with the serde, put together as LMCache's wrapper does."""

    def __init__(self, folder: Path, **options: object) -> None:
        """Makes both as LMCache's storage manager does: the adapter first."""
        spec = {
            "type": "plugin",
            "module_path": "kvcompress.integrations.lmcache_serde",
            "class_name": "StockAdapter",
            "adapter_params": {"type": "fs", "base_path": str(folder)},
        }
        config = get_l2_adapter_config_class("plugin").from_dict(spec)
        self.adapter = create_l2_adapter_from_registry(config, None)
        self.serde = create_serde_processor(SerdeConfig(type="kvcompress", kwargs=options))

    def buffer(self, like: Any) -> Any:  # noqa: ANN401
        """A memory object of the size that the serde announces."""
        layout = serialized_layout_desc(
            MemoryLayoutDesc(like.get_shapes(), like.get_dtypes()), self.serde
        )
        return memory(torch.full(tuple(layout.shapes[0]), 255, dtype=torch.uint8))

    def store(self, source: Any, key: Any = KEY) -> bool:  # noqa: ANN401
        """Serializes, and stores what was written."""
        buffer, done = self.buffer(source), {}
        task = self.serde.submit_serialize([source], [buffer], [key])
        descriptor = self.serde.get_serialize_event_fd()
        if not finish(descriptor, self.serde.query_serialize_result, task):
            return False

        def query(task: int) -> Any:  # noqa: ANN401
            done.update(self.adapter.pop_completed_store_tasks())
            return done.get(task)

        task = self.adapter.submit_store_task([key], [buffer])
        return bool(finish(self.adapter.get_store_event_fd(), query, task).is_successful())

    def load(self, like: Any, key: Any = KEY) -> Any:  # noqa: ANN401
        """Loads, and restores into zeros; None for a miss."""
        buffer, target = self.buffer(like), zeros_like(like)
        task = self.adapter.submit_load_task([key], [buffer])
        descriptor = self.adapter.get_load_event_fd()
        if not finish(descriptor, self.adapter.query_load_result, task).test(0):
            return None
        task = self.serde.submit_deserialize([buffer], [target], [key])
        descriptor = self.serde.get_deserialize_event_fd()
        if not finish(descriptor, self.serde.query_deserialize_result, task):
            assert not target.get_tensor(0).any()
            return None
        return target.get_tensor(0)

    def close(self) -> None:
        """Ends both."""
        self.adapter.close()
        self.serde.close()


@pytest.fixture
def make(server: Any, tmp_path: Path) -> Iterator[Any]:  # noqa: ANN401
    """Makes adapters with serdes on one folder and one service, and closes them."""
    made = []

    def make_one(**options: object) -> Stock:
        made.append(Stock(tmp_path, server=server.target, **options))
        return made[-1]

    yield make_one
    for each in made:
        each.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_hit_in_every_layout(make: Any, tmp_path: Path, layout: str) -> None:  # noqa: ANN401
    """The slot is all that is stored, and holds the chunk bit for bit where it fits so."""
    shape, params = LAYOUTS[layout]
    source = memory(states(*shape))
    stock = make(ratio=0.5, **params)
    assert stock.store(source)
    [path] = tmp_path.glob("*.data")
    assert path.stat().st_size == 2 * source.get_size()
    assert torch.equal(make(ratio=0.5, **params).load(source), source.get_tensor(0))


@pytest.mark.parametrize(("ratio", "error"), [(1.7, 0.02), (3, 0.5)])
def test_best_codec_that_fits(make: Any, ratio: float, error: float) -> None:  # noqa: ANN401
    """int8 where there is space for it, and a smaller one where there is not."""
    source = memory(states(2, 4, 256, 128))
    stock = make(ratio=ratio, codecs=["lossless", "int8", "int4", "klt:ultra"], **KV)
    assert stock.store(source)
    restored = stock.load(source)
    assert (restored.float() - source.get_tensor(0).float()).pow(2).mean().sqrt() < error


def test_codecs_are_those_of_the_service(client: Client) -> None:
    """A lossless codec and a preset of klt that are new are tried without a word here."""
    codecs = client.server_info().codecs
    klt = ("klt:contract", "klt:high", "klt:max", "klt:ultra")
    assert ladder(codecs) == ("lossless", "int8", *klt)
    [old] = [codec for codec in codecs if codec.name == "klt"]
    others = [codec for codec in codecs if codec.name not in ("klt", "int8")]
    newer = replace(old, presets=(*old.presets, "least"))
    exact = replace(others[0], name="exact", lossless=True)
    assert ladder([*others, newer, exact]) == ("lossless", "exact", *klt, "klt:least")


def test_slot_in_bytes(make: Any, tmp_path: Path) -> None:  # noqa: ANN401
    stock = make(max_bytes=50_000, codec="int8", **KV)
    assert stock.store(memory(states(*CHUNK)))
    [path] = tmp_path.glob("*.data")
    assert path.stat().st_size == 50_000


def test_what_does_not_fit_is_not_stored(make: Any) -> None:  # noqa: ANN401
    stock = make(ratio=100, **KV)
    assert not stock.store(memory(states(*CHUNK)))


@pytest.mark.parametrize("field", OTHERS)
def test_chunk_of_another_key_is_a_miss(make: Any, tmp_path: Path, field: str) -> None:  # noqa: ANN401
    stock, source = make(ratio=1.5, codec="int8", **KV), memory(states(*CHUNK))
    assert stock.store(source)
    [path] = tmp_path.glob("*.data")
    data = path.read_bytes()
    assert stock.store(source, other_key(field))
    [other] = set(tmp_path.glob("*.data")) - {path}
    other.write_bytes(data)
    assert stock.load(source) is not None
    assert stock.load(source, other_key(field)) is None


@pytest.mark.parametrize("place", [0, 3, 100, 3000])
def test_damage_is_a_miss(make: Any, tmp_path: Path, place: int) -> None:  # noqa: ANN401
    stock, source = make(ratio=1.5, codec="int8", **KV), memory(states(*CHUNK))
    assert stock.store(source)
    [path] = tmp_path.glob("*.data")
    data = bytearray(path.read_bytes())
    data[place] ^= 16
    path.write_bytes(data)
    assert stock.load(source) is None


def test_what_cannot_succeed_is_tried_once(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    """As with a profile that the server does not have: it is not asked with every request."""
    calls: list[str] = []

    def counted(name: str) -> Any:  # noqa: ANN401
        call = getattr(Service, name)

        def counting(*arguments: Any) -> Any:  # noqa: ANN401
            calls.append(name)
            if name == "restore":
                raise FailedPreconditionError("no profile", reason="PROFILE_MISSING")
            return call(*arguments)

        return counting

    source = memory(states(*CHUNK))
    stock = make(codec="int8", ratio=1.7, **KV)
    assert stock.store(source)
    for name in ("compress", "restore"):
        monkeypatch.setattr(Service, name, counted(name))
    for _ in range(2):
        assert stock.load(source) is None
    other = make(codec="klt:max", profile="nobody's", **KV)
    for _ in range(2):
        assert not other.store(source)
    assert calls == ["restore", "compress"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {**KV, "ratio": 0},
        {**KV, "ratio": 4, "max_bytes": 100},
        {**KV, "codecs": []},
        {**KV, "path": "/cache"},
        {**KV, "codek": "int8"},
    ],
)
def test_mistakes_are_told_at_the_start(make: Any, options: dict[str, object]) -> None:  # noqa: ANN401
    with pytest.raises((TypeError, ValueError)):
        make(**options)


def test_lines_of_the_readme(
    bin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMCache takes the configuration that the README has, with a server of its own."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir.resolve()))
    [block] = claimed_blocks("lmcache serde")
    [text] = [line for line in block.split("'") if "StockAdapter" in line]
    spec = json.loads(text)
    assert spec["adapter_params"].pop("base_path") == "/cache"
    assert spec["adapter_params"] == {"type": "fs"}
    options = spec["serde"]
    stock = Stock(tmp_path, **options)
    source = memory(states(8, 256, 2 * 4 * options["head_dim"]))
    assert stock.store(source)
    [path] = tmp_path.glob("*.data")
    assert path.stat().st_size == source.get_size() // options["ratio"]
    assert stock.load(source) is not None
    stock.close()
