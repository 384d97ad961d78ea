# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""NaN in padding and in slots that nothing was written to: kept bit for bit, and said."""

import struct
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from transformers import DynamicCache  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

import kvcompress  # noqa: E402
from kvcompress.integrations import llama_cpp  # noqa: E402
from kvcompress.integrations._artefact_folder import ArtefactFolder, Content  # noqa: E402
from kvcompress.integrations._exact import compress, names_not_finite  # noqa: E402
from kvcompress.integrations._exchange import Exchange  # noqa: E402
from kvcompress.integrations._lmcache_service import Parameters, Service  # noqa: E402
from kvcompress.integrations.transformers import (  # noqa: E402
    CompressedCache,
    cache_tensors,
    load_cache,
    save_cache,
)
from kvcompress.store import ArtefactStore  # noqa: E402

# Codecs that quantize, with options that `lossless` would refuse among them.
CODECS: tuple[dict[str, Any], ...] = (
    {"codec": "int8"},
    {"codec": "int4-hadamard", "min_snr_db": 15},
    {"codec": "ecsq+zstd"},
    {"codec": "klt:max", "attention": {0: [0.0] * 48}},
)


def padded(dtype: Any = torch.float32) -> Any:  # noqa: ANN401
    """Keys of two texts, of which the first begins with padding."""
    torch.manual_seed(0)
    keys = torch.randn(2, 2, 48, 64).to(dtype)
    keys[0, :, :20] = float("nan")
    keys[0, 0, 20, 0] = float("inf")
    return keys


def same(one: Any, other: Any) -> bool:  # noqa: ANN401
    """Whether two tensors have the same bits."""
    bits = [each.contiguous().view(torch.uint8) for each in (one, other)]
    return bool(torch.equal(*bits))


@pytest.mark.parametrize("options", CODECS, ids=lambda options: options["codec"])
def test_kept_with_a_warning(client: kvcompress.Client, options: dict[str, Any]) -> None:
    """Which names the tensors; without such values nothing is kept, and nothing said."""
    tensors = {f"layer_{layer}_key": padded() for layer in range(5)}
    tensors["layer_0_value"] = torch.ones(2, 2, 48, 64)
    expected = r"NOT_FINITE: .* layer_0_key, layer_1_key, layer_2_key and 2 more: "
    with pytest.warns(kvcompress.CompressionWarning, match=expected):
        result = compress(client, tensors, **options)
    assert result.report.codec == "lossless"
    assert result.artefact is not None
    restored = client.decompress(result.artefact).torch_tensors()
    assert all(same(restored[name], each) for name, each in tensors.items())
    finite = compress(client, {"layer_0_key": padded().nan_to_num(0, 1, -1)}, **options)
    assert finite.report.codec != "lossless"


def test_other_errors_stay(client: kvcompress.Client) -> None:
    with pytest.raises(kvcompress.InvalidArgumentError, match="codec"):
        compress(client, {"layer_0_key": padded()}, codec="int9")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_values_that_are_not_finite_are_found(dtype: str) -> None:
    kind = getattr(torch, dtype)
    tensors = {"a": torch.ones(3).to(kind), "b": padded(kind), "c": torch.arange(3)}
    assert names_not_finite(tensors) == ["b"]


def test_generate_goes_on(client: kvcompress.Client) -> None:
    """A CompressedCache keeps the block, and those after it are quantized again."""
    cache = CompressedCache(client, codec="int8", residual_length=8, block_length=16)
    first, steps = padded(), torch.ones(2, 2, 24, 64)
    with pytest.warns(kvcompress.CompressionWarning, match="NOT_FINITE"):
        cache.update(first, first, 0)
    keys, _ = cache.update(steps, steps, 0)
    assert same(keys[..., :48, :], first)
    assert [block.report.codec for block in cache.blocks] == ["lossless", "int8:64"]


def test_cache_is_saved(client: kvcompress.Client, tmp_path: Path) -> None:
    cache = DynamicCache()
    cache.update(padded(), padded(), 0)
    with pytest.warns(kvcompress.CompressionWarning, match="layer_0_key, layer_0_value"):
        save_cache(client, tmp_path / "cache", cache, codec="int4")
    restored = cache_tensors(load_cache(client, tmp_path / "cache"))
    assert same(restored["layer_0_key"], padded())


def test_chunk_of_lmcache_is_stored(server: Any) -> None:  # noqa: ANN401
    """With the default codec of its adapter."""
    parameters = Parameters.parse(
        {"server": server.target, "path": "unused", "layout": "kv", "head_dim": 64, "timeout": 60}
    )
    service = Service(parameters)
    chunk = torch.randn(2, 3, 64, 128).bfloat16()
    chunk[0, 0, 60:] = float("nan")
    labels = {"a": "b"}
    with pytest.warns(kvcompress.CompressionWarning, match="NOT_FINITE.* group_0:"):
        artefact = service.compress({"group_0": chunk}, "2ltd:head_dim=64", labels)
    kinds = {"group_0": ("bfloat16", (2, 3, 64, 128))}
    assert same(service.restore(artefact, labels, kinds)["group_0"], chunk)
    service.close()


def test_pages_of_an_engine_are_saved(client: kvcompress.Client, tmp_path: Path) -> None:
    """In the folder of the tiers for vLLM and SGLang."""
    kinds = {"layer_0_key": ("float32", (2, 2, 48, 64))}
    store = ArtefactStore(tmp_path)
    folder = ArtefactFolder(store, "m", {"model": "m"}, Content(lambda blocks: kinds, 1))
    with pytest.warns(kvcompress.CompressionWarning, match="NOT_FINITE"):
        folder.save(client, ["a" * 64], {"layer_0_key": padded()}, {"codec": "klt"}, 60)
    artefact = folder.artefact_of("a" * 64)
    assert artefact is not None
    restored = folder.restore(Exchange(client), folder.read(artefact), None, 60)
    assert same(restored["layer_0_key"], padded())


def test_slot_of_llama_cpp_is_compressed(client: kvcompress.Client) -> None:
    cells, row = 64, 256
    state = struct.pack("<IIIII", 0x67677371, 3, 0, 1, cells)
    state += b"".join(struct.pack("<iIi", cell, 1, 0) for cell in range(cells))
    state += struct.pack("<II", 0, 1)
    state += struct.pack("<iQ", 1, row) + b"\x00\x7e" * (cells * row // 2)
    state += struct.pack("<iQ", 1, row) + bytes(cells * row)
    with pytest.warns(kvcompress.CompressionWarning, match="NOT_FINITE"):
        result = llama_cpp.compress(client, state, head_dim=64, codec="klt")
    assert result.artefact is not None
    assert llama_cpp.restore(client, result.artefact) == state
