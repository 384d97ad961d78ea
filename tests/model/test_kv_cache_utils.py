# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kv_cache_utils, with torch and transformers themselves."""

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")

from safetensors.torch import load_file  # noqa: E402
from transformers import DynamicCache  # noqa: E402

from compression_bridge import CompressionError, compress_kv_cache  # noqa: E402
from kv_cache_utils import (  # noqa: E402
    compute_kv_cache_stats,
    extract_kv_cache,
    load_kv_cache,
    save_kv_cache,
    validate_kv_cache_shape,
)
from measure.injection import layers_of  # noqa: E402


def cache_of(layers: int = 3, heads: int = 4, tokens: int = 10, dtype: Any = None) -> Any:
    random = torch.Generator().manual_seed(0)
    cache = DynamicCache()
    for i in range(layers):
        keys, values = (torch.randn(1, heads, tokens, 64, generator=random) for _ in range(2))
        cache.update(keys.to(dtype), values.to(dtype), i)
    return cache


def same(one: Any, other: Any) -> bool:
    return all(
        torch.equal(a.float(), b.float())
        for left, right in zip(layers_of(one), layers_of(other), strict=True)
        for a, b in zip(left, right, strict=True)
    )


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_a_cache_goes_into_a_file_and_back(tmp_path: Path, name: str) -> None:
    cache = cache_of(dtype=getattr(torch, name))
    path = tmp_path / "cache.safetensors"
    saved = save_kv_cache(cache, str(path))
    expected = "float32" if name == "bfloat16" else name
    assert (saved.num_layers, saved.num_kv_heads, saved.seq_len, saved.head_dim) == (3, 4, 10, 64)
    assert saved.dtype == expected
    assert json.loads(Path(f"{path}.metadata.json").read_text()) == saved.to_dict()
    assert sorted(load_file(path)) == sorted(
        f"layer_{i}_{part}" for i in range(3) for part in ("key", "value")
    )
    loaded, metadata = load_kv_cache(str(path))
    assert metadata == saved
    assert same(loaded, cache)


def test_a_compressed_file_is_loaded_like_a_plain_one(tmp_path: Path) -> None:
    cache = cache_of(layers=12)
    plain, packed = tmp_path / "plain.safetensors", tmp_path / "packed.safetensors"
    save_kv_cache(cache, str(plain))
    compress_kv_cache(str(plain), str(packed), codec="lossless")
    loaded, metadata = load_kv_cache(str(packed))
    assert metadata.num_layers == 12
    assert same(loaded, cache)
    data = bytearray(packed.read_bytes())
    data[-1] ^= 1
    packed.write_bytes(data)
    with pytest.raises(CompressionError, match="DATA_LOSS"):
        load_kv_cache(str(packed))


def test_files_that_are_no_caches_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "cache.safetensors"
    path.write_bytes(b"not a safetensors file")
    with pytest.raises(ValueError, match="not a safetensors file"):
        load_kv_cache(str(path))
    save_kv_cache(cache_of(), str(path))
    tensors = load_file(path)
    del tensors["layer_1_value"]
    from safetensors.torch import save_file

    save_file(tensors, path)
    with pytest.raises(ValueError, match="layer_1_value"):
        load_kv_cache(str(path))


def test_shapes_are_compared_with_what_is_expected() -> None:
    assert validate_kv_cache_shape(cache_of(22)) == (True, [])
    valid, errors = validate_kv_cache_shape(cache_of(21, heads=32))
    assert not valid
    assert errors[0] == "Expected 22 layers, got 21"
    assert errors[1] == "Layer 0 key: expected 4 KV heads, got 32"
    assert validate_kv_cache_shape(DynamicCache()) == (False, ["the cache is empty"])
    assert validate_kv_cache_shape(cache_of(3), 3, 4, 64)[0]


def test_statistics_are_those_of_all_values() -> None:
    cache = DynamicCache()
    cache.update(torch.zeros(1, 1, 2, 4), torch.full((1, 1, 2, 4), 2.0), 0)
    stats = compute_kv_cache_stats(cache)
    assert (stats["num_layers"], stats["num_kv_heads"], stats["seq_len"]) == (1, 1, 2)
    assert (stats["total_elements"], stats["total_bytes"]) == (16, 64)
    assert (stats["value_mean"], stats["value_std"]) == (1, 1)
    assert (stats["value_min"], stats["value_max"]) == (0, 2)


class Tokenizer:
    """Makes a token of every character."""

    def __call__(self, text: str, **options: Any) -> dict[str, Any]:
        """Returns ids as transformers' tokenizers do."""
        ids = [ord(character) % 97 for character in text][: options.get("max_length")]
        return {"input_ids": torch.tensor([ids], dtype=torch.long)}


def test_a_prompt_becomes_a_cache(model: Any) -> None:
    cache, metadata = extract_kv_cache(model, Tokenizer(), "Hello, world!")
    assert (metadata.num_layers, metadata.num_kv_heads, metadata.seq_len) == (2, 2, 13)
    assert validate_kv_cache_shape(cache, 2, 2, 32) == (True, [])
    _, short = extract_kv_cache(model, Tokenizer(), "Hello, world!", max_length=5)
    assert short.seq_len == 5
    with pytest.raises(ValueError, match="empty"):
        extract_kv_cache(model, Tokenizer(), "")
