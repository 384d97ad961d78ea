# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Layers of a transformers cache that are compressed, and restored, in one call.

A call costs about as much as restoring a layer's thousand tokens does.
"""

import os
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress._client import Client
from kvcompress._reports import CompressionReport
from kvcompress.errors import InvalidArgumentError
from kvcompress.integrations._cache_states import PARTS
from kvcompress.integrations._exact import NOT_FINITE, compress
from kvcompress.integrations._exchange import Exchange, Tensors
from kvcompress.options import CompressArguments

if TYPE_CHECKING:
    from kvcompress.gpu import Decoder, Encoder
    from kvcompress.integrations._compressed_layer import CompressedLayer

_TOO_LARGE = "SCALE_OVERFLOW"  # the reason of an error of the encoder
_FIRST = 2  # layers of the first group, for which the model waits in every step
_THREADS = 2
_SPARES = 3  # files for the groups that are restored at a time, and for the one in use


@dataclass(frozen=True, eq=False)
class Block:
    """Tokens of some layers that are compressed, once and never again.

    Attributes:
        artefact: Their keys and values.
        layers: Indices of the layers, ascending.
        length: Number of tokens. A layer uses the first of them alone once others are cropped.
        report: What compressing cost.
    """

    artefact: bytes
    layers: tuple[int, ...]
    length: int
    report: CompressionReport


_ALL: "weakref.WeakSet[Shared]" = weakref.WeakSet()


class Shared:
    """What the layers of a cache have in common.

    Attributes:
        groups: All groups, in the order in which the model comes to them.
    """

    def __init__(
        self,
        client: Client,
        options: CompressArguments,
        *,
        residual_length: int,
        block_length: int,
        group_layers: int,
        decoded_bytes: int,
        encoder: "Encoder | None",
        decoder: "Decoder | None",
    ) -> None:
        """Begins without layers; see CompressedCache."""
        if encoder is not None and options:
            raise ValueError(f"an encoder has its own codec, and takes no {min(options)}")
        if encoder is not None and encoder.codec == "klt":
            raise ValueError("layers of a block are no group of a profile: encode int4 or int8")
        self.groups: list[LayerGroup] = []
        self.residual_length, self.block_length = residual_length, block_length
        self._group_layers = group_layers
        self._client, self._exchange = client, Exchange(client, spares=_SPARES)
        self._exchange.open()
        self._options: CompressArguments = {**options, "report_tensors": False}
        self._left = decoded_bytes
        self._encoder, self._decoder = encoder, decoder
        self.start_threads()
        _ALL.add(self)

    def start_threads(self) -> None:
        """Makes threads that restore, and forgets what others were to restore."""
        # A Decoder is for one.
        threads = _THREADS if self._decoder is None else 1
        self._pool = ThreadPoolExecutor(threads, "kvcompress-decode")
        for group in self.groups:
            group.forget_coming()

    def place(self, layer: "CompressedLayer") -> "LayerGroup":
        """Puts a layer into the last group, or into a new one where that is full."""
        most = min(_FIRST, self._group_layers) if len(self.groups) == 1 else self._group_layers
        if not self.groups or len(self.groups[-1].layers) == most:
            self.groups.append(LayerGroup(self, len(self.groups)))
        self.groups[-1].layers.append(layer)
        return self.groups[-1]

    def compress(self, tensors: Tensors) -> tuple[bytes, CompressionReport]:
        """Compresses tensors: on their device, unless it cannot hold what they are."""
        if self._encoder is not None:
            try:
                encoded = self._encoder.encode(tensors)
            except InvalidArgumentError as error:
                if error.reason not in (NOT_FINITE, _TOO_LARGE):
                    raise
            else:
                return encoded.artefact, encoded.report
        result = compress(self._client, tensors, **self._options)
        if result.artefact is None:
            raise RuntimeError("an artefact without a path is in memory")
        return result.artefact, result.report

    def restore(self, block: Block) -> Future[Tensors]:
        """Begins to restore a block."""
        if self._decoder is not None:
            device = self._decoder.device
            # Of the model's thread; the pool's has another.
            stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
            return self._pool.submit(_decode, self._decoder, block.artefact, stream)
        return self._pool.submit(self._exchange.restore, block.artefact)

    def may_stay(self, size: int) -> bool:
        """Returns whether so many decompressed bytes more may stay, and then counts them."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        """Counts bytes that stay no longer."""
        self._left += size


class LayerGroup:
    """Consecutive layers. Not thread safe.

    Attributes:
        layers: These, in the model's order.
    """

    def __init__(self, shared: Shared, place: int) -> None:
        """Begins without layers."""
        self.layers: list[CompressedLayer] = []
        self._shared, self._place = shared, place
        self._coming: dict[Block, Future[Tensors]] = {}
        # Restored, and not yet taken by all layers; and what stays.
        self._passing: dict[Block, Tensors] = {}
        self._staying: dict[Block, Tensors] = {}

    def fetch(self) -> None:
        """Begins to restore what is missing, here and in the next group."""
        for group in self._shared.groups[self._place : self._place + 2]:
            for block in group.blocks():
                if not any(
                    block in there for there in (group._coming, group._passing, group._staying)
                ):
                    group._coming[block] = self._shared.restore(block)

    def forget_coming(self) -> None:
        """Waits no longer for what is being restored: it is restored when it is taken."""
        self._coming.clear()

    def take(self, block: Block, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the keys and the values of a layer. What does not stay is taken once.

        Raises:
            KVCompressError: A call of the service failed.
        """
        names = [f"layer_{index}_{part}" for part in PARTS]
        if block in self._staying:
            keys, values = (self._staying[block][name] for name in names)
            return keys, values
        tensors = self._passing.get(block, {})
        if names[0] not in tensors:
            tensors = self._restored(block)
        if block in self._staying:
            keys, values = (tensors[name] for name in names)
        else:
            keys, values = (tensors.pop(name) for name in names)
            if not tensors:
                del self._passing[block]
        return keys, values

    def compress(self) -> None:
        """Compresses what is old, in all layers.

        Raises:
            KVCompressError: A call of the service failed. The layers keep their tokens.
        """
        due: dict[int, list[CompressedLayer]] = {}
        for layer in self.layers:
            length = layer.residual() - self._shared.residual_length
            if length >= self._shared.block_length:
                due.setdefault(length, []).append(layer)
        # Lengths differ only where somebody treated one of the layers in another way.
        for length, layers in due.items():
            tensors = {
                name: states for layer in layers for name, states in layer.oldest(length).items()
            }
            artefact, report = self._shared.compress(tensors)
            block = Block(artefact, tuple(layer.index for layer in layers), length, report)
            for layer in layers:
                layer.replace_oldest(block)

    @property
    def decoded_bytes(self) -> int:
        """Bytes of decompressed blocks that stay for the next step."""
        return sum(map(_size, self._staying.values()))

    def release(self) -> None:
        """Keeps no decompressed block any longer."""
        self._shared.give_back(self.decoded_bytes)
        for there in (self._coming, self._passing, self._staying):
            there.clear()

    def blocks(self) -> list[Block]:
        """Returns the blocks of all layers, each once."""
        return list(dict.fromkeys(block for layer in self.layers for block in layer.blocks))

    def _restored(self, block: Block) -> Tensors:
        """Waits for a block."""
        self._passing.pop(block, None)
        coming = self._coming.pop(block, None) or self._shared.restore(block)
        tensors = coming.result()
        there = self._staying if self._shared.may_stay(_size(tensors)) else self._passing
        there[block] = tensors
        return tensors


def _start_threads() -> None:
    """Makes new threads for all caches: a forked process has none of its parent's."""
    for shared in _ALL:
        shared.start_threads()


os.register_at_fork(after_in_child=_start_threads)


def _decode(decoder: "Decoder", artefact: bytes, stream: "torch.cuda.Stream | None") -> Tensors:
    """Restores on a device, with memory of the stream that uses what is restored."""
    return decoder.decode(artefact, stream=stream).tensors


def _size(tensors: Tensors) -> int:
    """Returns the bytes of tensors."""
    return sum(int(each.nbytes) for each in tensors.values())
