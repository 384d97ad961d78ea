# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""KV caches of transformers models: taking them, saving them, loading them, looking at them.

Needs torch and transformers, but not to be imported. Takes every cache that transformers has
had: objects with `layers`, objects with lists `key_cache` and `value_cache`, and tuples.
"""

import json
import math
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import compression_bridge

if TYPE_CHECKING:
    from transformers import DynamicCache

TINYLLAMA_NUM_LAYERS = 22
TINYLLAMA_NUM_KV_HEADS = 4  # grouped-query attention: 4 heads of keys and values, not 32
TINYLLAMA_NUM_QUERY_HEADS = 32
TINYLLAMA_HEAD_DIM = 64
TINYLLAMA_HIDDEN_SIZE = 2048
TINYLLAMA_VOCAB_SIZE = 32000

_NAME = re.compile(r"layer_(\d+)_(key|value)")


@dataclass
class KVCacheMetadata:
    """What a KV cache is.

    Attributes:
        num_layers: Number of layers.
        num_kv_heads: Number of heads of keys and values.
        seq_len: Number of tokens.
        head_dim: Values per token and head.
        dtype: Type of the values, such as `float16`.
        model_name: What made it; empty when not known.
    """

    num_layers: int
    num_kv_heads: int
    seq_len: int
    head_dim: int
    dtype: str
    model_name: str

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict that JSON can write."""
        return asdict(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Self:
        """Takes what to_dict returned; keys that are not known are ignored.

        Raises:
            KeyError: A field is missing.
        """
        return cls(**{field.name: d[field.name] for field in fields(cls)})


def _layers(cache: Any) -> list[tuple[Any, Any]]:
    """Returns keys and values by layer.

    Raises:
        ValueError: The cache is empty.
    """
    from measure.injection import layers_of

    return layers_of(cache)


def _describe(cache: Any, model_name: str) -> KVCacheMetadata:
    """Returns the metadata of a cache.

    Raises:
        ValueError: The cache is empty, its keys are not four-dimensional, or a batch.
    """
    layers = _layers(cache)
    keys = layers[0][0]
    if keys.dim() != 4:
        raise ValueError(f"keys have the shape {tuple(keys.shape)}, not [1, heads, tokens, dim]")
    batch, heads, tokens, dim = keys.shape
    if batch != 1:
        raise ValueError(f"the cache has a batch of {batch}; only a batch of 1 is supported")
    dtype = str(keys.dtype).removeprefix("torch.")
    return KVCacheMetadata(len(layers), heads, tokens, dim, dtype, model_name)


def extract_kv_cache(
    model: Any,
    tokenizer: Any,
    prompt: str,
    max_length: int | None = None,
    device: str | None = None,
) -> tuple["DynamicCache", KVCacheMetadata]:
    """Runs a model over a prompt and takes its cache.

    Args:
        model: A causal language model of transformers.
        tokenizer: Its tokenizer.
        prompt: Text to read.
        max_length: Most tokens to read; None for all.
        device: Where to run; None for where the model is.

    Returns:
        The cache, and what it is.

    Raises:
        ValueError: The batch is not 1, or the cache is empty.
    """
    import torch
    from transformers import DynamicCache

    if device is not None:
        model = model.to(device)
    inputs = tokenizer(
        prompt,
        return_tensors="pt",
        truncation=max_length is not None,
        **({} if max_length is None else {"max_length": max_length}),
    )
    ids = inputs["input_ids"].to(model.device)
    if ids.shape[0] != 1:
        raise ValueError(f"the prompt is a batch of {ids.shape[0]}; only 1 is supported")
    if ids.shape[1] == 0:
        raise ValueError("the cache is empty: the prompt has no tokens")
    with torch.inference_mode():
        output = model(input_ids=ids, past_key_values=DynamicCache(), use_cache=True)
    name = str(getattr(getattr(model, "config", None), "_name_or_path", "") or "")
    cache = output.past_key_values
    return cache, _describe(cache, name)


def save_kv_cache(
    cache: Any,
    path: str,
    metadata_path: str | None = None,
) -> KVCacheMetadata:
    """Saves a cache as a safetensors file of tensors `layer_{i}_key` and `layer_{i}_value`.

    bfloat16 becomes float32, which holds the same values, so that NumPy opens the file;
    `lossless` finds this out and takes no more space for it.

    Args:
        cache: A cache of transformers.
        path: Where the file goes.
        metadata_path: Where its metadata goes, as JSON; None for `path` + `.metadata.json`.

    Returns:
        The metadata, with the type that was saved.

    Raises:
        ValueError: The cache is empty, or a batch.
        OSError: A file cannot be written.
    """
    import torch
    from safetensors.torch import save_file

    metadata = _describe(cache, "")
    tensors = {}
    for i, pair in enumerate(_layers(cache)):
        for part, tensor in zip(("key", "value"), pair, strict=True):
            whole = tensor.detach().cpu()
            if whole.dtype == torch.bfloat16:
                whole = whole.float()
            tensors[f"layer_{i}_{part}"] = whole.contiguous().clone()
    metadata.dtype = str(tensors["layer_0_key"].dtype).removeprefix("torch.")
    save_file(tensors, path)
    sidecar = Path(metadata_path or f"{path}.metadata.json")
    sidecar.write_text(json.dumps(metadata.to_dict(), indent=2) + "\n")
    return metadata


def _is_artefact(path: Path) -> bool:
    """Returns whether a safetensors file is a compressed one, by its metadata.

    Raises:
        ValueError: It is no safetensors file.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size:
            raise ValueError(f"{path} is not a safetensors file")
        try:
            header = json.loads(file.read(length))
            return any(key.startswith("kvcompress.") for key in header.get("__metadata__", {}))
        except (ValueError, AttributeError) as error:
            raise ValueError(f"{path} is not a safetensors file") from error


def load_kv_cache(
    path: str,
    metadata_path: str | None = None,
    device: str = "cpu",
) -> tuple["DynamicCache", KVCacheMetadata]:
    """Loads a cache from a safetensors file, plain or compressed.

    A compressed one is restored by the service first, which verifies every checksum.

    Args:
        path: The file.
        metadata_path: Its metadata; None for `path` + `.metadata.json`. The model's name is
            taken from there if it is there; all else is taken from the tensors.
        device: Where to put the tensors.

    Returns:
        The cache, and what it is.

    Raises:
        ValueError: The file is not a cache, or a layer is missing.
        compression_bridge.CompressionError: A compressed file is damaged.
        OSError: The file cannot be read, or `metadata_path` is given and cannot.
    """
    from safetensors.torch import load_file
    from transformers import DynamicCache

    if _is_artefact(Path(path)):
        with tempfile.TemporaryDirectory(prefix="kvcompress-") as folder:
            restored = Path(folder) / "restored.safetensors"
            compression_bridge.decompress_kv_cache(path, str(restored))
            tensors = load_file(restored, device=device)
    else:
        tensors = load_file(path, device=device)
    layers = {int(found[1]) for name in tensors if (found := _NAME.fullmatch(name))}
    cache = DynamicCache()
    for i in range(len(layers)):
        try:
            cache.update(tensors[f"layer_{i}_key"], tensors[f"layer_{i}_value"], i)
        except KeyError as error:
            raise ValueError(f"{path} has no tensor {error}") from error
    metadata = _describe(cache, "")
    sidecar = Path(metadata_path or f"{path}.metadata.json")
    if metadata_path is not None or sidecar.exists():
        metadata.model_name = str(json.loads(sidecar.read_text()).get("model_name", ""))
    return cache, metadata


def validate_kv_cache_shape(
    cache: Any,
    expected_layers: int = TINYLLAMA_NUM_LAYERS,
    expected_kv_heads: int = TINYLLAMA_NUM_KV_HEADS,
    expected_head_dim: int = TINYLLAMA_HEAD_DIM,
) -> tuple[bool, list[str]]:
    """Compares the shape of a cache with what is expected; the defaults are TinyLlama's.

    Args:
        cache: A cache of transformers.
        expected_layers: Number of layers.
        expected_kv_heads: Number of heads of keys and values.
        expected_head_dim: Values per token and head.

    Returns:
        Whether all is as expected, and a sentence for each thing that is not.
    """
    try:
        layers = _layers(cache)
    except ValueError as error:
        return False, [str(error)]
    errors = []
    if len(layers) != expected_layers:
        errors.append(f"Expected {expected_layers} layers, got {len(layers)}")
    tokens = layers[0][0].shape[2] if layers[0][0].dim() == 4 else None
    for i, pair in enumerate(layers):
        for part, tensor in zip(("key", "value"), pair, strict=True):
            where = f"Layer {i} {part}"
            if tensor.dim() != 4:
                errors.append(f"{where}: expected 4 dimensions, got {tensor.dim()}")
                continue
            _, heads, length, dim = tensor.shape
            if heads != expected_kv_heads:
                errors.append(f"{where}: expected {expected_kv_heads} KV heads, got {heads}")
            if dim != expected_head_dim:
                errors.append(f"{where}: expected head_dim {expected_head_dim}, got {dim}")
            if tokens is not None and length != tokens:
                errors.append(f"{where}: expected {tokens} tokens, got {length}")
    return not errors, errors


def compute_kv_cache_stats(cache: Any) -> dict[str, Any]:
    """Returns sizes and statistics of a cache.

    Args:
        cache: A cache of transformers.

    Returns:
        num_layers, num_kv_heads, seq_len, head_dim, total_elements, total_bytes, total_mb
        (2^20 bytes), dtype, and value_mean, value_std (over all values), value_min, value_max.

    Raises:
        ValueError: The cache is empty, or a batch.
    """
    metadata = _describe(cache, "")
    tensors = [tensor for pair in _layers(cache) for tensor in pair]
    elements = sum(tensor.numel() for tensor in tensors)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    mean = sum(float(tensor.double().sum()) for tensor in tensors) / elements
    square = sum(float((tensor.double() - mean).square().sum()) for tensor in tensors)
    return {
        "num_layers": metadata.num_layers,
        "num_kv_heads": metadata.num_kv_heads,
        "seq_len": metadata.seq_len,
        "head_dim": metadata.head_dim,
        "total_elements": elements,
        "total_bytes": size,
        "total_mb": size / 2**20,
        "dtype": str(tensors[0].dtype),
        "value_mean": mean,
        "value_std": math.sqrt(square / elements),
        "value_min": min(float(tensor.min()) for tensor in tensors),
        "value_max": max(float(tensor.max()) for tensor in tensors),
    }
