# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.integrations.lmcache, through LMCache's own factory, threads and memory objects."""

import itertools
import json
import select
from pathlib import Path
from typing import Any

import pytest
from documents import claimed_blocks

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("lmcache", reason="lmcache is not installed")

from lmcache.v1.distributed.api import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    MemoryLayoutDesc,
    ObjectKey,
)
from lmcache.v1.distributed.serde import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    SerdeConfig,
    create_serde_processor,
    serialized_layout_desc,
)
from lmcache.v1.memory_management import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    MemoryFormat,
    MemoryObjMetadata,
    TensorMemoryObj,
)

import kvcompress  # noqa: E402
from kvcompress.integrations.lmcache import register  # noqa: E402

LAYERS, TOKENS, HEADS, HEAD_DIM = 3, 32, 2, 16
KEY = ObjectKey(chunk_hash=b"\x01" * 16, model_name="org/model", kv_rank=0, cache_salt="a")
NUMBERS = itertools.count()


def memory(tensors: list[Any], form: MemoryFormat) -> TensorMemoryObj:
    """A memory object that holds tensors one after the other."""
    raw = torch.cat([tensor.contiguous().view(torch.uint8).flatten() for tensor in tensors])
    shapes, dtypes = [each.shape for each in tensors], [each.dtype for each in tensors]
    metadata = MemoryObjMetadata(
        shapes[0], dtypes[0], 0, raw.numel(), 1, fmt=form, shapes=shapes, dtypes=dtypes
    )
    return TensorMemoryObj(raw, metadata, None)


def states(*shape: int, dtype: Any = None) -> Any:  # noqa: ANN401
    """Random states."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator).to(dtype or torch.bfloat16)


def processor(client: kvcompress.Client, **options: object) -> Any:  # noqa: ANN401
    """A serde, made as LMCache makes it."""
    name = f"kvcompress{next(NUMBERS)}"
    register(client, name)
    return create_serde_processor(SerdeConfig(type=name, kwargs=options))


def finish(descriptor: int, query: Any, task: int) -> bool:  # noqa: ANN401
    """Waits for a task as LMCache does."""
    while True:
        ready, _, _ = select.select([descriptor], [], [], 60)
        assert ready
        done = query(task)
        if done is not None:
            return bool(done)


def store(serde: Any, source: TensorMemoryObj, key: ObjectKey = KEY) -> TensorMemoryObj | None:  # noqa: ANN401
    """What is stored of a memory object: a buffer cut to what was written."""
    layout = serialized_layout_desc(
        MemoryLayoutDesc(source.get_shapes(), source.get_dtypes()), serde
    )
    buffer = memory([torch.zeros(layout.shapes[0], dtype=torch.uint8)], MemoryFormat.BINARY)
    task = serde.submit_serialize([source], [buffer], [key])
    if not finish(serde.get_serialize_event_fd(), serde.query_serialize_result, task):
        return None
    written = bytearray(bytes(buffer.byte_array))
    assert len(written) == buffer.get_size()
    # A buffer for loading is as large as the bound, with whatever was there behind.
    rest = torch.full((int(layout.shapes[0][0]) - len(written),), 255, dtype=torch.uint8)
    data = torch.cat([torch.frombuffer(written, dtype=torch.uint8), rest])
    return memory([data], MemoryFormat.BINARY)


def load(serde: Any, stored: TensorMemoryObj, like: TensorMemoryObj, key: ObjectKey = KEY) -> Any:  # noqa: ANN401
    """What is loaded into a memory object of zeros; None when loading fails."""
    zeros = [
        torch.zeros(s, dtype=d) for s, d in zip(like.get_shapes(), like.get_dtypes(), strict=True)
    ]
    target = memory(zeros, like.get_memory_format())
    task = serde.submit_deserialize([stored], [target], [key])
    done = finish(serde.get_deserialize_event_fd(), serde.query_deserialize_result, task)
    tensors = [target.get_tensor(index) for index in range(len(zeros))]
    if not done:
        assert not any(tensor.any() for tensor in tensors), "nothing is half restored"
    return tensors if done else None


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize(
    ("form", "options"),
    [
        (MemoryFormat.KV_2LTD, {"head_dim": HEAD_DIM}),
        (MemoryFormat.KV_2LTD, {}),
        (MemoryFormat.UNDEFINED, {"head_dim": HEAD_DIM, "layout": "KV_2LTD"}),
        (MemoryFormat.KV_MLA_FMT, {"layout": "KV_MLA_FMT"}),
    ],
)
def test_chunk_comes_back(
    client: kvcompress.Client, dtype: str, form: MemoryFormat, options: dict[str, object]
) -> None:
    """Bit for bit with lossless, in every layout; several groups of tensors too."""
    parts = 1 if "MLA" in form.name else 2
    first = states(parts, LAYERS, TOKENS, HEADS * HEAD_DIM, dtype=getattr(torch, dtype))
    source = memory([first, first[:, :1] * 2], form)
    serde = processor(client, codec="lossless", **options)
    stored = store(serde, source)
    assert stored is not None
    restored = load(serde, stored, source)
    assert torch.equal(restored[0], first)
    assert torch.equal(restored[1], first[:, :1] * 2)
    serde.close()


@pytest.mark.parametrize("codec", ["int4", "int8", "int4-hadamard", "ecsq", "auto"])
def test_what_is_stored_is_small_and_near(client: kvcompress.Client, codec: str) -> None:
    source = memory([states(2, 8, 256, 512)], MemoryFormat.KV_2LTD)
    serde = processor(client, codec=codec, head_dim=64)
    stored = store(serde, source)
    assert stored is not None
    (restored,) = load(serde, stored, source)
    error = (restored.float() - source.get_tensor(0).float()).pow(2).mean().sqrt()
    assert error < 0.15
    layout = MemoryLayoutDesc(source.get_shapes(), source.get_dtypes())
    if codec.startswith("int"):
        bound = serde.estimate_serialized_size(layout)
        assert bound < source.get_size() * (0.6 if codec == "int8" else 0.3)
    serde.close()


@pytest.mark.parametrize("field", ["chunk_hash", "model_name", "kv_rank", "cache_salt"])
def test_chunk_of_another_key_is_a_miss(client: kvcompress.Client, field: str) -> None:
    values: dict[str, Any] = {
        "chunk_hash": KEY.chunk_hash,
        "model_name": "org/model",
        "kv_rank": 0,
        "cache_salt": "a",
    }
    others = {"chunk_hash": b"\x02" * 16, "model_name": "b", "kv_rank": 1, "cache_salt": ""}
    other = ObjectKey(**{**values, field: others[field]})
    source = memory([states(2, 1, TOKENS, 64)], MemoryFormat.KV_2LTD)
    serde = processor(client)
    stored = store(serde, source)
    assert stored is not None
    assert load(serde, stored, source) is not None
    assert load(serde, stored, source, other) is None
    serde.close()


@pytest.mark.parametrize("place", [0, 3, 100, 2000])
def test_damage_is_a_miss(client: kvcompress.Client, place: int) -> None:
    source = memory([states(2, 1, TOKENS, 64)], MemoryFormat.KV_2LTD)
    serde = processor(client)
    stored = store(serde, source)
    assert stored is not None
    stored.raw_data[place] ^= 16
    assert load(serde, stored, source) is None
    serde.close()


def test_other_layouts_are_refused(client: kvcompress.Client) -> None:
    """Shapes alone do not tell layouts apart: what is configured must be what is there."""
    source = memory([states(2, 1, TOKENS, 64)], MemoryFormat.KV_T2D)
    serde = processor(client)
    assert store(serde, source) is None
    flat = MemoryLayoutDesc([torch.Size([2, TOKENS, 64])], [torch.float16])
    with pytest.raises(ValueError, match="is not KV_2LTD"):
        serde.estimate_serialized_size(flat)
    whole = MemoryLayoutDesc([torch.Size([2, 1, TOKENS, 64])], [torch.int8])
    with pytest.raises(ValueError, match="cannot be compressed"):
        serde.estimate_serialized_size(whole)
    serde.close()
    mistakes: list[dict[str, object]] = [{"layout": "KV_T2D"}, {"codek": "int4"}, {"labels": {}}]
    for options in mistakes:
        with pytest.raises(ValueError, match=r"not one of|no such option"):
            processor(client, **options)


def test_lines_of_the_readme(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is registered takes the configuration that the comment has, with a server of its own."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir.resolve()))
    [block] = claimed_blocks("lmcache")
    exec(block, {})
    [adapter] = [json.loads(line[2:]) for line in block.splitlines() if line.startswith("# {")]
    options = adapter["serde"]
    serde = create_serde_processor(SerdeConfig(type=options.pop("type"), kwargs=options))
    source = memory([states(2, LAYERS, TOKENS, 2 * options["head_dim"])], MemoryFormat.KV_2LTD)
    stored = store(serde, source)
    assert stored is not None
    assert stored.get_size() < source.get_size() / 2
    assert load(serde, stored, source) is not None
    serde.close()
