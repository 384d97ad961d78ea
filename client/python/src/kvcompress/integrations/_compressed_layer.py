# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A layer of a transformers cache whose older tokens are compressed."""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from transformers.cache_utils import (  # type: ignore[import-not-found,unused-ignore]
    DynamicLayer,
)

from kvcompress._client import Client
from kvcompress._reports import CompressionReport
from kvcompress.integrations._cache_states import PARTS
from kvcompress.integrations._exchange import Exchange, Tensors
from kvcompress.options import CompressArguments

_AHEAD = 2  # layers whose blocks are restored while the model computes
_THREADS = 2


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


class DecodedBudget:
    """Bytes of decompressed blocks that may stay; the layers of a cache share them."""

    def __init__(self, limit: int) -> None:
        """Begins with nothing that stays."""
        self._left = limit

    def take(self, size: int) -> bool:
        """Tells whether so many bytes more may stay, and then counts them."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        """Counts bytes that stay no longer."""
        self._left += size


class Shared:
    """What the layers of a cache have in common.

    Attributes:
        client: Compresses.
        budget: Of what stays.
        layers: All of them, in the order in which the model comes to them.
    """

    def __init__(self, client: Client, decoded_bytes: int) -> None:
        """Begins without layers."""
        self.client, self._exchange = client, Exchange(client)
        self._exchange.open()
        self._pool = ThreadPoolExecutor(_THREADS, "kvcompress-decode")
        self.budget = DecodedBudget(decoded_bytes)
        self.layers: list[CompressedLayer] = []

    def restore(self, block: Block) -> Future[Tensors]:
        """Begins to restore a block."""
        tokens = (0, block.length)
        return self._pool.submit(self._exchange.restore, block.artefact, tokens=tokens)


class CompressedLayer(DynamicLayer):  # type: ignore[misc,unused-ignore]
    """A layer whose older tokens are compressed; `keys` and `values` hold the others.

    Not thread safe, as other layers.
    """

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(
        self,
        shared: Shared,
        index: int,
        options: CompressArguments,
        residual_length: int,
        block_length: int,
    ) -> None:
        """Begins empty, and as the last of the layers so far; see CompressedCache."""
        super().__init__()
        self.blocks: list[Block] = []
        self._shared, self._place = shared, len(shared.layers)
        shared.layers.append(self)
        # By index in `blocks`: what stays, and what is being restored.
        self._decoded: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._coming: dict[int, Future[Tensors]] = {}
        self._index = index
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
        for layer in self._shared.layers[self._place : self._place + 1 + _AHEAD]:
            layer.fetch()
        parts = [self._decompressed(index) for index in range(len(self.blocks))]
        if not parts:
            return self.keys, self.values
        keys, values = zip(*parts, (self.keys, self.values), strict=True)
        return torch.cat(keys, dim=-2), torch.cat(values, dim=-2)

    def fetch(self) -> None:
        """Begins to restore the blocks that are not there, and not coming either."""
        for index, block in enumerate(self.blocks):
            if index not in self._decoded and index not in self._coming:
                self._coming[index] = self._shared.restore(block)

    def get_seq_length(self) -> int:
        """Gives the number of tokens, compressed ones included."""
        return sum(block.length for block in self.blocks) + int(super().get_seq_length())

    @property
    def decoded_bytes(self) -> int:
        """Bytes of decompressed blocks that stay for the next step."""
        return sum(each.nbytes for pair in self._decoded.values() for each in pair)

    def release(self) -> None:
        """Keeps no decompressed block any longer."""
        self._shared.budget.give_back(self.decoded_bytes)
        self._decoded.clear()
        self._coming.clear()

    def reset(self) -> None:
        """Forgets all tokens."""
        self.release()
        self.blocks = []
        super().reset()

    def crop(self, tokens_to_remove: int) -> None:
        """Removes the newest tokens; `tokens_to_remove` is their number, negative."""
        removed = -tokens_to_remove
        residual = int(super().get_seq_length())
        super().crop(max(tokens_to_remove, -residual) if removed > 0 else tokens_to_remove)
        rest = removed - residual
        if rest > 0:
            self.release()
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
        self.release()
        self.keys, self.values = self.keys[indices], self.values[indices]
        self.blocks = [
            replace(block, rows=indices.clone() if block.rows is None else block.rows[indices])
            for block in self.blocks
        ]

    def _compress(self, length: int) -> None:
        """Compresses the oldest tokens that are not."""
        old = zip(PARTS, (self.keys[..., :length, :], self.values[..., :length, :]), strict=True)
        tensors = {f"layer_{self._index}_{part}": states for part, states in old}
        result = self._shared.client.compress(tensors, **self._options)
        if result.artefact is None:
            raise RuntimeError("an artefact without a path is in memory")
        self.blocks.append(Block(result.artefact, length, None, result.report))
        # Copies, for slices would keep the memory of the whole.
        self.keys = self.keys[..., length:, :].clone()
        self.values = self.values[..., length:, :].clone()

    def _decompressed(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Gives the keys and the values of a block, which may stay for the next time."""
        if index in self._decoded:
            return self._decoded[index]
        pair = self._placed(self.blocks[index], self._coming.pop(index).result())
        if self._shared.budget.take(sum(each.nbytes for each in pair)):
            self._decoded[index] = pair
        return pair

    def _placed(self, block: Block, tensors: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        """Gives the keys and the values of a block, where the others are and for their rows."""
        keys, values = (
            tensors[f"layer_{self._index}_{part}"].to(self.keys.device) for part in PARTS
        )
        return (keys, values) if block.rows is None else (keys[block.rows], values[block.rows])
