# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Caches of Hugging Face transformers, version 5: compressed while in use, and kept in files.

cache = CompressedCache(client, model.config, codec="int4-hadamard")
model.generate(**inputs, past_key_values=cache)

save_cache(client, "prompt.safetensors", cache, labels=model_labels(model))
cache = load_cache(client, "prompt.safetensors", expected_labels=model_labels(model))
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import torch  # type: ignore[import-not-found,unused-ignore]
from transformers.cache_utils import (  # type: ignore[import-not-found,unused-ignore]
    Cache,
    DynamicCache,
)

from kvcompress._client import Client
from kvcompress._reports import CompressionReport
from kvcompress._requests import PathOrStr
from kvcompress._sinks import FileSink
from kvcompress.integrations import _cache_states
from kvcompress.integrations._compressed_layer import CompressedLayer
from kvcompress.integrations._exact import compress
from kvcompress.integrations._layer_group import Block, Shared
from kvcompress.options import CompressArguments, DecompressArguments

if TYPE_CHECKING:
    from kvcompress.gpu import Decoder, Encoder

_PARTS = _cache_states.PARTS
_PASSING = {"_commit_hash", "_name_or_path", "transformers_version"}
_SAMPLES, _DIGITS = 256, 32  # bytes of each parameter; digits of a digest


class CompressedCache(Cache):  # type: ignore[misc,unused-ignore]
    """A cache for `generate(past_key_values=...)` whose older tokens are compressed.

    It is for memory, not for speed. The newest tokens stay as they are. Once there are enough older
    ones, those of several consecutive layers become one artefact. It is decompressed for every
    step, while the model computes the layers before, unless `decoded_bytes` lets what was
    decompressed stay. No token is compressed twice, so that errors do not add up. Beam search,
    assisted generation and batches work. Layers with a sliding window or recurrent states are kept
    as transformers keeps them; a UserWarning says so where a model has no others.
    """

    def __init__(
        self,
        client: Client,
        config: Any = None,  # noqa: ANN401
        *,
        residual_length: int = 128,
        block_length: int = 128,
        group_layers: int = 6,
        decoded_bytes: int = 0,
        encoder: "Encoder | None" = None,
        decoder: "Decoder | None" = None,
        **options: Unpack[CompressArguments],
    ) -> None:
        """Begins empty.

        Args:
            client: Compresses and decompresses; has to stay open while the cache is in use.
            config: The model's, which shows which layers have a sliding window; None for a
                model whose layers all see every token. Without it layers become known one by
                one, and the first prompt is compressed, and restored, layer by layer.
            residual_length: How many of the newest tokens are never compressed.
            block_length: How many older tokens are compressed at once, at least.
            group_layers: How many layers are compressed, and restored, in one call, at most. More
                are faster, and take more memory: two groups at a time are restored.
            decoded_bytes: How much of what was decompressed may stay for the next step, on top of
                the artefacts; `release` frees it. The result does not depend on it.
            encoder: A `kvcompress.gpu.Encoder` of int4 or int8 for the model's device, without
                options. What it cannot hold, such as NaN, goes to the client's default codec.
            decoder: A `kvcompress.gpu.Decoder`, which restores on that device.
            options: See `kvcompress.options.CompressArguments`. With bounds, `update` raises
                QualityError when a block misses one, and keeps its tokens as they are, in all
                of its layers.

        Raises:
            ValueError: A number is too small, or there are options besides an encoder.
        """
        if min(residual_length, decoded_bytes) < 0 or min(block_length, group_layers) < 1:
            raise ValueError(
                "residual_length and decoded_bytes are at least 0, block_length and group_layers "
                "at least 1"
            )
        self._shared = Shared(
            client,
            options,
            residual_length=residual_length,
            block_length=block_length,
            group_layers=group_layers,
            decoded_bytes=decoded_bytes,
            encoder=encoder,
            decoder=decoder,
        )

        def make_layer(index: int) -> CompressedLayer:
            return CompressedLayer(self._shared, index)

        if config is None:
            super().__init__(layer_class_to_replicate=lambda: make_layer(len(self.layers)))
        else:
            super().__init__(layers=_layers(config, make_layer))

    @property
    def blocks(self) -> Iterator[Block]:
        """The compressed blocks of all layers, each once, with what it cost."""
        for group in self._shared.groups:
            yield from group.blocks()

    @property
    def stored_bytes(self) -> int:
        """Bytes that the cache holds: artefacts, and tokens that are not compressed or decoded."""
        size = sum(len(block.artefact) for block in self.blocks)
        size += sum(group.decoded_bytes for group in self._shared.groups)
        return size + sum(map(_cache_states.held_bytes, self.layers))

    def release(self) -> None:
        """Keeps no decompressed block any longer; the next step decompresses them again."""
        for group in self._shared.groups:
            group.release()


def cache_tensors(cache: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401
    """Returns the states of a cache by name, as `Client.compress` takes them.

    Args:
        cache: A DynamicCache, a CompressedCache, or an object with the lists `key_cache` and
            `value_cache`.

    Returns:
        `layer_{i}_key` and `layer_{i}_value`, [batch, heads, tokens, head_dim].

    Raises:
        KVCompressError: A compressed layer cannot be read.
        ValueError: A layer is empty, or has no longer all of its tokens.
    """
    if hasattr(cache, "key_cache"):
        pairs = list(zip(cache.key_cache, cache.value_cache, strict=True))
    else:
        pairs = [_layer_states(index, layer) for index, layer in enumerate(cache.layers)]
    return {
        f"layer_{index}_{part}": states
        for index, pair in enumerate(pairs)
        for part, states in zip(_PARTS, pair, strict=True)
    }


def cache_from_tensors(
    tensors: Mapping[str, torch.Tensor],
    device: torch.device | str | None = None,
) -> DynamicCache:
    """Makes a DynamicCache of what `cache_tensors` returned.

    Args:
        tensors: `layer_{i}_key` and `layer_{i}_value`, for i from 0 without a gap.
        device: Where the states go; None for where they are.

    Raises:
        ValueError: The names are others.
    """
    names = [[f"layer_{i}_{part}" for part in _PARTS] for i in range(len(tensors) // 2)]
    if {name for pair in names for name in pair} != tensors.keys():
        raise ValueError("the tensors are not those of a cache, layer by layer")
    return DynamicCache([tuple(tensors[name].to(device) for name in pair) for pair in names])


def model_labels(model: Any) -> dict[str, str]:  # noqa: ANN401
    """Returns labels that name a model and its weights as they are, for `labels`.

    `weights` is a digest of the configuration, and of name, type, shape and 256 bytes of each
    parameter and buffer, but not of paths: a copy elsewhere has the same labels, and a model that
    was trained further, or has another adapter, has others.

    Args:
        model: A PreTrainedModel, or any module with a `config`.

    Raises:
        ValueError: A parameter is on no device (`meta`).
    """
    config = {n: v for n, v in model.config.to_dict().items() if n not in _PASSING}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.state_dict().items()):
        if tensor.device.type == "meta":
            raise ValueError(f"{name} is not in memory: load the model, or choose labels yourself")
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        raw = tensor.detach().contiguous().flatten().view(torch.uint8)
        last = max(raw.numel() - 1, 0)
        places = torch.arange(_SAMPLES, device=raw.device) * last // (_SAMPLES - 1)
        digest.update(bytes(raw[places].tolist()) if raw.numel() else b"")
    return {"model": type(model).__name__, "weights": digest.hexdigest()[:_DIGITS]}


def save_cache(
    client: Client | None,
    path: PathOrStr,
    cache: Any,  # noqa: ANN401
    *,
    require: bool = True,
    encoder: "Encoder | None" = None,
    **options: Unpack[CompressArguments],
) -> CompressionReport:
    """Compresses a cache into a file, for `load_cache` in this process or another.

    Args:
        client: Compresses. None with an encoder.
        path: The file; appears whole or not at all, in the place of one that is there.
        cache: A cache whose layers have keys and values: DynamicCache, StaticCache, one with
            sliding windows as Gemma 3 has them, CompressedCache, or an object with the lists
            `key_cache` and `value_cache`. Layers with a window are saved with what they hold,
            and those that share the states of another without any, as Gemma 3n has them. Refused
            are caches with quantized layers, or with other states, such as recurrent ones.
        require: Whether bounds that are given have to hold; see `Client.compress`.
        encoder: A `kvcompress.gpu.Encoder`, which compresses on the device of the cache, and with
            its own client what it does not encode. `labels` is then the one option.
        options: See `kvcompress.options.CompressArguments`. `labels` should say what the cache
            is of: the model and its weights (`model_labels`), and the prompt.

    Returns:
        Sizes and quality.

    Raises:
        KVCompressError: The call failed; a QualityError, and no file, when a bound that was given
            does not hold.
        OSError: The file cannot be written.
        TypeError: There is neither a client nor an encoder, or the encoder has no such option.
        ValueError: The cache is another, or empty.
    """
    metadata: dict[str, str] | None = None
    if hasattr(cache, "key_cache"):
        tensors = cache_tensors(cache)
    else:
        tensors, metadata = _cache_states.take(cache)
    if encoder is not None:
        encoded = encoder.encode(tensors, metadata=metadata, **options)  # type: ignore[misc]
        with FileSink(path, overwrite=True) as file:
            file.write(0, encoded.artefact)
            file.commit()
        return encoded.report
    if client is None:
        raise TypeError("a client or an encoder has to compress the cache")
    return compress(
        client, tensors, path, overwrite=True, metadata=metadata, require=require, **options
    ).report


def load_cache(
    client: Client | None,
    path: PathOrStr,
    *,
    cache: Any = None,  # noqa: ANN401
    device: torch.device | str | None = None,
    decoder: "Decoder | None" = None,
    **options: Unpack[DecompressArguments],
) -> Any:  # noqa: ANN401
    """Restores a cache from a file, after every check.

    Args:
        client: Decompresses. None with a decoder.
        path: A file that `save_cache` wrote.
        cache: An empty cache of the same model to fill, such as a StaticCache with space for
            what comes; None for a DynamicCache. One with sliding windows that was saved from a
            StaticCache shorter than these has to be loaded into a cache made with the config.
        device: Where the states go; None for the CPU, or for the device of the decoder.
        decoder: A `kvcompress.gpu.Decoder`, which restores on its device, and with its own client
            what it does not decode. The options are then those that its `decode` has too.
        options: See `kvcompress.options.DecompressArguments`: `expected_labels`; `tokens` for
            files whose layers have no window, into a DynamicCache.

    Returns:
        The cache, for `generate(past_key_values=...)` together with all ids of the prompt.

    Raises:
        KVCompressError: The call failed: DataLossError for a file that is damaged or has other
            labels.
        OSError: The file cannot be read.
        PayloadError: The decoder found the file damaged.
        TypeError: There is neither a client nor a decoder, or the decoder has no such option.
        ValueError: The file holds something else than a cache, or does not fit into `cache`.
    """
    tensors: Mapping[str, torch.Tensor]
    if decoder is not None:
        decoded = decoder.decode(Path(path), **options)  # type: ignore[misc]
        tensors, metadata = decoded.tensors, decoded.metadata
    elif client is not None:
        result = client.decompress(path, **options)
        tensors, metadata = result.torch_tensors(), dict(result.metadata or {})
    else:
        raise TypeError("a client or a decoder has to restore the file")
    if _cache_states.METADATA not in metadata or options.get("tokens") is not None:
        if cache is not None:
            raise ValueError("a cache can be filled with all tokens of a file of save_cache alone")
        if _cache_states.has_windows(metadata):
            raise ValueError("layers with a window cannot be restored in part")
        return cache_from_tensors(tensors, device)
    return _cache_states.put(tensors, metadata, cache, device)


def _layers(config: Any, make: Callable[[int], CompressedLayer]) -> list[Any]:  # noqa: ANN401
    """Returns the layers of a model's cache, of which those that can be are compressed."""
    plain = DynamicCache(config=config).layers
    layers = [
        make(index) if _cache_states.has_every_token(layer) else layer
        for index, layer in enumerate(plain)
    ]
    if layers == plain:
        kinds = ", ".join(sorted({type(layer).__name__ for layer in plain}))
        warnings.warn(
            f"CompressedCache compresses nothing of this model: no layer of {kinds} holds the keys "
            "and values of every token and nothing else; use a DynamicCache",
            stacklevel=3,
        )
    return layers


def _layer_states(index: int, layer: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    """Returns the keys and values of a layer of transformers."""
    if not getattr(layer, "is_initialized", False) or not hasattr(layer, "get_seq_length"):
        raise ValueError(f"layer {index} has no states")
    states = layer.states() if isinstance(layer, CompressedLayer) else (layer.keys, layer.values)
    if states[0].shape[-2] != layer.get_seq_length():
        raise ValueError(f"layer {index} has no longer all of its tokens")
    return states
