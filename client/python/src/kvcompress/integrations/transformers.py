# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Caches of Hugging Face transformers, version 5: compressed while in use, and kept in files.

cache = CompressedCache(client, model.config, codec="int4-hadamard")
model.generate(**inputs, past_key_values=cache)

save_cache(client, "prompt.safetensors", cache, labels={"model": name})
cache = load_cache(client, "prompt.safetensors", expected_labels={"model": name})
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Unpack

import torch  # type: ignore[import-not-found,unused-ignore]
from transformers.cache_utils import (  # type: ignore[import-not-found,unused-ignore]
    Cache,
    DynamicCache,
    DynamicLayer,
)

from kvcompress._client import Client
from kvcompress._reports import CompressionReport
from kvcompress._requests import PathOrStr
from kvcompress.integrations import _cache_states
from kvcompress.options import CompressArguments, DecompressArguments

_PARTS = _cache_states.PARTS


@dataclass(frozen=True)
class Block:
    """Tokens of one layer that are compressed.

    Attributes:
        artefact: Their keys and values; compressed once and never again.
        length: Number of tokens that count, from the first.
        rows: What became of the batch: row i of the cache is row `rows[i]` of the artefact.
            None for no change.
        report: What compressing cost.
    """

    artefact: bytes
    length: int
    rows: torch.Tensor | None
    report: CompressionReport


class CompressedLayer(DynamicLayer):  # type: ignore[misc,unused-ignore]
    """A layer whose older tokens are compressed; `keys` and `values` hold the others.

    Not thread safe, as other layers.
    """

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(
        self,
        client: Client,
        index: int,
        options: CompressArguments,
        residual_length: int,
        block_length: int,
    ) -> None:
        """Begins empty; see CompressedCache."""
        super().__init__()
        self.blocks: list[Block] = []
        self._client, self._index = client, index
        self._options: CompressArguments = {**options, "report_tensors": False}
        self._residual_length, self._block_length = residual_length, block_length

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *args: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends tokens, then compresses what is old.

        Args:
            key_states: New keys, [batch, heads, tokens, head_dim].
            value_states: New values, likewise.
            args: Not used, as in other layers.
            kwargs: Not used.

        Returns:
            All keys and all values; the new ones, and the newest before them, as they are.

        Raises:
            KVCompressError: A call of the service failed. The tokens are appended all the same.
        """
        super().update(key_states, value_states)
        result = self.states()
        if self.keys.shape[-2] >= self._residual_length + self._block_length:
            self._compress(self.keys.shape[-2] - self._residual_length)
        return result

    def states(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Gives all keys and all values, [batch, heads, tokens, head_dim].

        Raises:
            KVCompressError: A call of the service failed.
        """
        parts = [self._decompress(block) for block in self.blocks]
        if not parts:
            return self.keys, self.values
        keys, values = zip(*parts, (self.keys, self.values), strict=True)
        return torch.cat(keys, dim=-2), torch.cat(values, dim=-2)

    def get_seq_length(self) -> int:
        """Gives the number of tokens, compressed ones included."""
        return sum(block.length for block in self.blocks) + int(super().get_seq_length())

    def reset(self) -> None:
        """Forgets all tokens."""
        self.blocks = []
        super().reset()

    def crop(self, tokens_to_remove: int) -> None:
        """Removes the newest tokens; `tokens_to_remove` is their number, negative."""
        removed = -tokens_to_remove
        residual = int(super().get_seq_length())
        super().crop(max(tokens_to_remove, -residual) if removed > 0 else tokens_to_remove)
        rest = removed - residual
        while rest > 0 and self.blocks:
            last = self.blocks.pop()
            if last.length > rest:
                self.blocks.append(replace(last, length=last.length - rest))
            rest -= last.length

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Reorders the batch, for beam search."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeats each row of the batch."""
        if self.is_initialized:
            rows = torch.arange(self.keys.shape[0], device=self.keys.device)
            self.batch_select_indices(rows.repeat_interleave(repeats))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Makes row i of the batch what row `indices[i]` is."""
        if not self.is_initialized:
            return
        indices = indices.to(self.keys.device)
        self.keys, self.values = self.keys[indices], self.values[indices]
        self.blocks = [
            replace(block, rows=indices.clone() if block.rows is None else block.rows[indices])
            for block in self.blocks
        ]

    def _compress(self, length: int) -> None:
        """Compresses the oldest tokens that are not."""
        old = zip(_PARTS, (self.keys[..., :length, :], self.values[..., :length, :]), strict=True)
        tensors = {f"layer_{self._index}_{part}": states for part, states in old}
        result = self._client.compress(tensors, **self._options)
        if result.artefact is None:
            raise RuntimeError("an artefact without a path is in memory")
        self.blocks.append(Block(result.artefact, length, None, result.report))
        # Copies, for slices would keep the memory of the whole.
        self.keys = self.keys[..., length:, :].clone()
        self.values = self.values[..., length:, :].clone()

    def _decompress(self, block: Block) -> tuple[torch.Tensor, torch.Tensor]:
        """Gives the keys and the values of a block."""
        result = self._client.decompress(block.artefact, tokens=(0, block.length))
        tensors = result.torch_tensors()
        keys, values = (
            tensors[f"layer_{self._index}_{part}"].to(self.keys.device) for part in _PARTS
        )
        return (keys, values) if block.rows is None else (keys[block.rows], values[block.rows])


class CompressedCache(Cache):  # type: ignore[misc,unused-ignore]
    """A cache for `generate(past_key_values=...)` whose older tokens are compressed.

    The newest tokens stay as they are. Once there are enough older ones, these become one
    artefact, and are decompressed for every step: memory is saved, and time is not. No token
    is compressed twice, so that errors do not add up. Beam search, assisted generation and
    batches work. Layers with a sliding window are kept as transformers keeps them.
    """

    def __init__(
        self,
        client: Client,
        config: Any = None,  # noqa: ANN401
        *,
        residual_length: int = 128,
        block_length: int = 128,
        **options: Unpack[CompressArguments],
    ) -> None:
        """Begins empty.

        Args:
            client: Compresses and decompresses; has to stay open while the cache is in use.
            config: The model's, which tells which layers have a sliding window; None for a
                model whose layers all see every token.
            residual_length: How many of the newest tokens are never compressed.
            block_length: How many older tokens are compressed at once, at least.
            options: See `kvcompress.options.CompressArguments`. With bounds, `update` raises
                QualityError when a block misses one, and keeps its tokens as they are.

        Raises:
            ValueError: A length is negative, or `block_length` is 0.
        """
        if residual_length < 0 or block_length < 1:
            raise ValueError("residual_length is at least 0, block_length at least 1")

        def make_layer(index: int) -> CompressedLayer:
            return CompressedLayer(client, index, options, residual_length, block_length)

        if config is None:
            super().__init__(layer_class_to_replicate=lambda: make_layer(len(self.layers)))
        else:
            layers = DynamicCache(config=config).layers
            super().__init__(
                layers=[
                    make_layer(index) if type(layer) is DynamicLayer else layer
                    for index, layer in enumerate(layers)
                ]
            )

    @property
    def blocks(self) -> Iterator[Block]:
        """The compressed blocks of all layers, with what each cost."""
        for layer in self.layers:
            yield from getattr(layer, "blocks", ())

    @property
    def stored_bytes(self) -> int:
        """Bytes that the cache holds: artefacts, and tokens that are not compressed."""
        size = sum(len(block.artefact) for block in self.blocks)
        for layer in self.layers:
            if layer.is_initialized:
                size += layer.keys.nbytes + layer.values.nbytes
        return size


def cache_tensors(cache: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401
    """Gives the states of a cache by name, as `Client.compress` takes them.

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
    """Makes a DynamicCache of what `cache_tensors` gave.

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


def save_cache(
    client: Client,
    path: PathOrStr,
    cache: Any,  # noqa: ANN401
    *,
    require: bool = True,
    **options: Unpack[CompressArguments],
) -> CompressionReport:
    """Compresses a cache into a file, for `load_cache` in this process or another.

    Args:
        client: Compresses.
        path: The file; appears whole or not at all.
        cache: A cache whose layers have keys and values: DynamicCache, StaticCache, one with
            sliding windows as Gemma 3 has them, CompressedCache, or an object with the lists
            `key_cache` and `value_cache`. Layers with a window are saved with what they hold.
            Refused are caches with quantized layers, or with other states.
        require: Whether bounds that are given have to hold; see `Client.compress`.
        options: See `kvcompress.options.CompressArguments`. `labels` should say what the cache
            is of: the model, its revision, the prompt.

    Returns:
        Sizes and quality.

    Raises:
        KVCompressError: The call failed; a QualityError, and no file, when a bound that was given
            does not hold.
        OSError: The file cannot be written.
        ValueError: The cache is another, or empty.
    """
    if hasattr(cache, "key_cache"):
        return client.compress(cache_tensors(cache), path, require=require, **options).report
    tensors, metadata = _cache_states.take(cache)
    return client.compress(tensors, path, metadata=metadata, require=require, **options).report


def load_cache(
    client: Client,
    path: PathOrStr,
    *,
    cache: Any = None,  # noqa: ANN401
    device: torch.device | str | None = None,
    **options: Unpack[DecompressArguments],
) -> Any:  # noqa: ANN401
    """Restores a cache from a file, after every check.

    Args:
        client: Decompresses.
        path: A file that `save_cache` wrote.
        cache: An empty cache of the same model to fill, such as a StaticCache with room for
            what comes; None for a DynamicCache. One with sliding windows that was saved from a
            StaticCache shorter than these has to be loaded into a cache made with the config.
        device: Where the states go; None for the CPU.
        options: See `kvcompress.options.DecompressArguments`: `expected_labels`; `tokens` for
            files whose layers have no window, into a DynamicCache.

    Returns:
        The cache, for `generate(past_key_values=...)` together with all ids of the prompt.

    Raises:
        KVCompressError: The call failed: DataLossError for a file that is damaged or has other
            labels.
        OSError: The file cannot be read.
        ValueError: The file holds something else than a cache, or does not fit into `cache`.
    """
    result = client.decompress(path, **options)
    tensors, metadata = result.torch_tensors(), result.metadata or {}
    if _cache_states.METADATA not in metadata or options.get("tokens") is not None:
        if cache is not None:
            raise ValueError("a cache can be filled with all tokens of a file of save_cache alone")
        if _cache_states.has_windows(metadata):
            raise ValueError("layers with a window cannot be restored in part")
        return cache_from_tensors(tensors, device)
    return _cache_states.put(tensors, metadata, cache, device)


def _layer_states(index: int, layer: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    """Gives the keys and values of a layer of transformers."""
    if not getattr(layer, "is_initialized", False):
        raise ValueError(f"layer {index} has no states")
    states = layer.states() if isinstance(layer, CompressedLayer) else (layer.keys, layer.values)
    if states[0].shape[-2] != layer.get_seq_length():
        raise ValueError(f"layer {index} has no longer all of its tokens")
    return states
