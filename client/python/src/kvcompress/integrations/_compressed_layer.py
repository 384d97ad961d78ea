# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A layer of a transformers cache whose older tokens are compressed."""

from dataclasses import dataclass, replace
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from transformers.cache_utils import (  # type: ignore[import-not-found,unused-ignore]
    DynamicLayer,
)

from kvcompress._client import Client
from kvcompress._reports import CompressionReport
from kvcompress.integrations._cache_states import PARTS
from kvcompress.options import CompressArguments


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
        budget: DecodedBudget,
    ) -> None:
        """Begins empty; see CompressedCache."""
        super().__init__()
        self.blocks: list[Block] = []
        self._budget = budget
        # By index in `blocks`.
        self._decoded: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
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
        parts = [self._decompressed(index) for index in range(len(self.blocks))]
        if not parts:
            return self.keys, self.values
        keys, values = zip(*parts, (self.keys, self.values), strict=True)
        return torch.cat(keys, dim=-2), torch.cat(values, dim=-2)

    def get_seq_length(self) -> int:
        """Gives the number of tokens, compressed ones included."""
        return sum(block.length for block in self.blocks) + int(super().get_seq_length())

    @property
    def decoded_bytes(self) -> int:
        """Bytes of decompressed blocks that stay for the next step."""
        return sum(each.nbytes for pair in self._decoded.values() for each in pair)

    def release(self) -> None:
        """Keeps no decompressed block any longer."""
        self._budget.give_back(self.decoded_bytes)
        self._decoded.clear()

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
        result = self._client.compress(tensors, **self._options)
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
        pair = self._decompress(self.blocks[index])
        if self._budget.take(sum(each.nbytes for each in pair)):
            self._decoded[index] = pair
        return pair

    def _decompress(self, block: Block) -> tuple[torch.Tensor, torch.Tensor]:
        """Gives the keys and the values of a block."""
        result = self._client.decompress(block.artefact, tokens=(0, block.length))
        tensors = result.torch_tensors()
        keys, values = (
            tensors[f"layer_{self._index}_{part}"].to(self.keys.device) for part in PARTS
        )
        return (keys, values) if block.rows is None else (keys[block.rows], values[block.rows])
