# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A layer of a transformers cache whose older tokens are compressed."""

from dataclasses import dataclass, replace
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from transformers.cache_utils import (  # type: ignore[import-not-found,unused-ignore]
    DynamicLayer,
)

from kvcompress.integrations._cache_states import PARTS
from kvcompress.integrations._exchange import Tensors
from kvcompress.integrations._layer_group import Block, Shared


@dataclass(frozen=True)
class Share:
    """What a layer uses of a block.

    Attributes:
        block: The block.
        length: Number of tokens that count, from the first.
        rows: What became of the batch: row i of the cache is row `rows[i]` of the artefact.
            None for no change.
    """

    block: Block
    length: int
    rows: torch.Tensor | None


class CompressedLayer(DynamicLayer):  # type: ignore[misc,unused-ignore]
    """A layer whose older tokens are compressed; `keys` and `values` hold the others.

    Not thread safe, as other layers.
    """

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, shared: Shared, index: int) -> None:
        """Begins empty, and as the last of the layers so far; see CompressedCache."""
        super().__init__()
        self.index = index
        self._shares: list[Share] = []
        self._group = shared.place(self)

    @property
    def blocks(self) -> list[Block]:
        """The blocks that this layer's older tokens are in."""
        return [share.block for share in self._shares]

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
        if self._group.layers[-1] is self:
            self._group.compress()
        return result

    def states(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns all keys and all values, [batch, heads, tokens, head_dim].

        Raises:
            KVCompressError: A call of the service failed.
        """
        self._group.fetch()
        pairs = [self._restored(share) for share in self._shares]
        if not pairs:
            return self.keys, self.values
        keys, values = zip(*pairs, (self.keys, self.values), strict=True)
        return torch.cat(keys, dim=-2), torch.cat(values, dim=-2)

    def residual(self) -> int:
        """Returns the number of tokens that are not compressed."""
        return int(super().get_seq_length())

    def oldest(self, length: int) -> Tensors:
        """Returns so many of the tokens that are not compressed, by the names of an artefact."""
        states = (self.keys[..., :length, :], self.values[..., :length, :])
        return {
            f"layer_{self.index}_{part}": each for part, each in zip(PARTS, states, strict=True)
        }

    def replace_oldest(self, block: Block) -> None:
        """Replaces the oldest tokens by the block that was made of them."""
        self._shares.append(Share(block, block.length, None))
        # Copies, for slices would keep the memory of the whole.
        self.keys = self.keys[..., block.length :, :].clone()
        self.values = self.values[..., block.length :, :].clone()

    def get_seq_length(self) -> int:
        """Returns the number of tokens, compressed ones included."""
        return sum(share.length for share in self._shares) + self.residual()

    def release(self) -> None:
        """Keeps no decompressed block any longer, of the layers of its group either."""
        self._group.release()

    def reset(self) -> None:
        """Forgets all tokens."""
        self.release()
        self._shares = []
        super().reset()

    def crop(self, tokens_to_remove: int) -> None:
        """Removes the newest tokens; `tokens_to_remove` is their number, negative."""
        removed = -tokens_to_remove
        residual = self.residual()
        super().crop(max(tokens_to_remove, -residual) if removed > 0 else tokens_to_remove)
        rest = removed - residual
        if rest > 0:
            self.release()
        while rest > 0 and self._shares:
            last = self._shares.pop()
            if last.length > rest:
                self._shares.append(replace(last, length=last.length - rest))
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
        self._shares = [
            replace(share, rows=indices.clone() if share.rows is None else share.rows[indices])
            for share in self._shares
        ]

    def _restored(self, share: Share) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns keys and values of a block: where the others are, its tokens, and their rows."""
        pair = self._group.take(share.block, self.index)
        keys, values = (each[..., : share.length, :].to(self.keys.device) for each in pair)
        return (keys, values) if share.rows is None else (keys[share.rows], values[share.rows])
