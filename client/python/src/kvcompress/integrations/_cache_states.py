# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the layers of transformers' caches hold, taken out and put back.

A layer that sees every token holds them all. One with a sliding window of W tokens holds the
newest W - 1, which is all that the next token looks at, and knows how many there were.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from transformers.cache_utils import (  # type: ignore[import-not-found,unused-ignore]
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    StaticLayer,
    StaticSlidingWindowLayer,
)

from kvcompress._foreign_files import parse_json

PARTS = ("key", "value")
_DIMENSIONS = 4
METADATA = "transformers.layers"


@dataclass(frozen=True)
class LayerState:
    """What a layer has seen.

    Attributes:
        length: Tokens that the layer has seen; 0 for a layer without states, such as one that
            shares those of another.
        window: Tokens of a sliding window; None where the layer holds every token.
        bounded: Whether that is a static layer's capacity, which may be less than the window.
    """

    length: int
    window: int | None = None
    bounded: bool = False

    @property
    def held(self) -> int:
        """Tokens that are kept."""
        return self.length if self.window is None else min(self.length, self.window - 1)


def has_every_token(layer: Any) -> bool:  # noqa: ANN401
    """Returns whether a dynamic layer holds keys and values of every token, and nothing else."""
    plain = isinstance(layer, DynamicLayer) and type(layer).update is DynamicLayer.update
    return plain and not layer.is_sliding and _others(layer) is None


def held_bytes(layer: Any) -> int:  # noqa: ANN401
    """Returns the bytes of all tensors of a layer, of whatever kind it is."""
    return sum(int(each.nbytes) for each in _tensors(vars(layer)))


def state_of(index: int, layer: Any) -> LayerState:  # noqa: ANN401
    """Returns what a layer has seen, from what it holds.

    Args:
        index: For messages.
        layer: Of any cache.

    Raises:
        ValueError: It has no keys and values as they are, or has more than these.
    """
    if hasattr(layer, "states"):
        return LayerState(int(layer.get_seq_length()))
    if (reason := _others(layer)) is not None:
        raise ValueError(f"layer {index} ({_name(layer)}) {reason}")
    if not hasattr(layer, "get_seq_length"):
        return LayerState(0)  # as where a layer shares the states of another
    length = int(layer.get_seq_length())
    if not getattr(layer, "is_sliding", False):
        return LayerState(length)
    if isinstance(layer, StaticLayer):
        return LayerState(length, int(layer.max_cache_len), bounded=True)
    return LayerState(length, int(layer.sliding_window))


def _others(layer: Any) -> str | None:  # noqa: ANN401
    """Returns why a layer cannot be saved as keys and values; None where it can.

    A layer that has yet to be filled is known by its methods: those that take other states are
    called `update_...`.
    """
    if hasattr(layer, "_quantize"):
        return "has quantized states; save a cache that is not"
    held = [
        name
        for name, value in vars(layer).items()
        if name not in ("keys", "values") and any(each.numel() > 1 for each in _tensors(value))
    ]
    taken = [name.removeprefix("update_") for name in dir(layer) if name.startswith("update_")]
    if held or taken:
        return f"has more than keys and values: {', '.join(held or taken)}"
    pair = (layer.keys, layer.values)
    if any(each is not None and each.numel() and each.ndim != _DIMENSIONS for each in pair):
        return f"has keys and values of {pair[0].ndim} and {pair[1].ndim} dimensions, not 4"
    return None


def _tensors(value: object) -> Iterator[torch.Tensor]:
    """Yields the tensors in a value, and in containers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


def take(cache: Any) -> tuple[dict[str, torch.Tensor], dict[str, str]]:  # noqa: ANN401
    """Returns the tensors of a cache, and what `put` needs besides as metadata.

    Args:
        cache: Any cache whose layers have keys and values.

    Raises:
        ValueError: A layer has others, or no layer has any.
    """
    layers = getattr(cache, "layers", None)
    if layers is None:
        raise ValueError(f"{_name(cache)} has no layers; of an encoder and decoder save each cache")
    states = [state_of(index, layer) for index, layer in enumerate(layers)]
    tensors = {}
    for index, (layer, state) in enumerate(zip(layers, states, strict=True)):
        if state.length == 0:
            continue
        pair = layer.states() if hasattr(layer, "states") else (layer.keys, layer.values)
        # A static layer has space after its tokens, until it is full.
        filled = min(state.length, pair[0].shape[-2])
        for part, tensor in zip(PARTS, pair, strict=True):
            tensors[f"layer_{index}_{part}"] = tensor[..., filled - state.held : filled, :]
    if not tensors:
        raise ValueError("no layer has states")
    return tensors, {METADATA: json.dumps([asdict(state) for state in states])}


def put(
    tensors: Mapping[str, torch.Tensor],
    metadata: Mapping[str, str],
    cache: Any = None,  # noqa: ANN401
    device: torch.device | str | None = None,
) -> Any:  # noqa: ANN401
    """Puts what `take` returned into a cache.

    Args:
        tensors: By name.
        metadata: Of the file.
        cache: An empty cache of the same model, such as a StaticCache with space for more; None
            for a DynamicCache.
        device: Where the states go; None for where they are.

    Returns:
        The cache.

    Raises:
        ValueError: The cache has other layers, or no space; it may have been filled in part.
    """
    states = _states(metadata)
    if cache is None:
        if any(state.bounded for state in states):
            raise ValueError(
                "the file is of a static cache with sliding windows, which does not know how wide "
                "these are: give an empty cache that was made with the model's config"
            )
        cache = DynamicCache()
        for state in states:
            sliding = state.window is not None
            cache.layers.append(
                DynamicSlidingWindowLayer(state.window) if sliding else DynamicLayer()
            )
    if not cache.layers and getattr(cache, "layer_class_to_replicate", None) is not None:
        cache.layers.extend(cache.layer_class_to_replicate() for _ in states)
    if len(cache.layers) != len(states):
        raise ValueError(f"the cache has {len(cache.layers)} layers, and the file {len(states)}")
    for index, (layer, state) in enumerate(zip(cache.layers, states, strict=True)):
        if state.length:
            pair = [tensors[f"layer_{index}_{part}"].to(device) for part in PARTS]
            _fill(index, layer, state, pair)
    return cache


def has_windows(metadata: Mapping[str, str]) -> bool:
    """Returns whether a file has layers that need not hold all of their tokens."""
    return METADATA in metadata and any(state.window is not None for state in _states(metadata))


def _states(metadata: Mapping[str, str]) -> list[LayerState]:
    """Returns what the layers of a file have seen.

    Raises:
        ValueError: The metadata is another program's.
    """
    try:
        return [LayerState(**each) for each in parse_json(metadata[METADATA])]
    except (TypeError, ValueError) as error:
        raise ValueError(f"the metadata {METADATA} is not what save_cache writes") from error


def _fill(index: int, layer: Any, state: LayerState, pair: list[torch.Tensor]) -> None:  # noqa: ANN401
    """Fills an empty layer.

    Raises:
        ValueError: It is not empty, of another kind, or has no space.
    """
    own = state_of(index, layer)
    if not hasattr(layer, "get_seq_length"):
        raise ValueError(f"layer {index} ({_name(layer)}) takes no states, and the file has some")
    if own.length:
        raise ValueError(f"layer {index} of the cache is not empty")
    room = getattr(layer, "max_cache_len", None)
    windows = {own.window, state.window}
    if len(windows) > 1 and (None in windows or state.length >= min(filter(None, windows))):
        raise ValueError(f"layer {index} has a window of {own.window}, in the file {state.window}")
    if own.window is None and room is not None and state.length > room:
        raise ValueError(f"layer {index} has room for {room} tokens, and the file {state.length}")
    if pair[0].shape[-2] == state.length:
        layer.update(*pair)
        return
    if not isinstance(layer, DynamicSlidingWindowLayer | StaticSlidingWindowLayer):
        raise ValueError(f"layer {index} lacks tokens in the file")
    if isinstance(layer, DynamicSlidingWindowLayer):
        layer.update(*pair)
        layer.cumulative_length = state.length
        return
    # A full static layer has one token more, which is dropped before it is looked at.
    layer.update(*(torch.nn.functional.pad(each, (0, 0, 1, 0)) for each in pair))
    layer.cumulative_length_int = state.length


def _name(value: object) -> str:
    """Returns the name of a value's class."""
    return type(value).__name__
