# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What kernels take of a profile: the matrix of a group on the device, by pairs of channels.

Pairs are those that the rotation rotates; other channels are paired too, since kernels finish two
channels at once. The pairs of a tensor are filled up to whole tiles, so that a tile has one tensor.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._product_kernels import rotation_kernel
from kvcompress.gpu._profile import Member, Profile
from kvcompress.gpu._upload import send
from kvcompress.payload._ecsq_tables import Tables

_NONE = -1


class Tiling(NamedTuple):
    """Sizes of the tiles of kernels: rows, pairs of channels, and components of a step."""

    rows: int
    pairs: int
    components: int


DEVICE_TILING = Tiling(128, 64, 128)
"""Those of the prototype on an H100, for heads of 64 and 128 channels."""
INTERPRETER_TILING = Tiling(16, 16, 32)
FIXED = 8
"""Numbers of a place, before those of its channels."""
_ROTATIONS = 256  # angles of a program
_VECTOR = 8  # elements that kernels read and write at once where they can


class Pairs(NamedTuple):
    """The pairs of a tensor: head and channels of each, -1 for none, and column of the tables."""

    head: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    column: npt.NDArray[np.int64]


def slot_table() -> npt.NDArray[np.int32]:
    """The symbol tables as kernels read them: i32 [56, 2048], symbol << 24 | f << 12 | offset."""
    tables = Tables.get()
    packed = (tables.symbol & 255) << 24 | tables.frequency << 12 | tables.offset
    return packed.astype(np.uint32).view(np.int32)


def pair_up(member: Member, pairs: int, interleaved: bool, column: int) -> Pairs:
    """Pairs the channels of a tensor.

    Args:
        member: The tensor.
        pairs: How many its rotation has, 0 without one.
        interleaved: Whether pair p is channels (2p, 2p + 1), not (p, p + pairs).
        column: Of the first pair in the tables of cosines and sines.
    """
    rotated = np.arange(pairs)
    rest = np.arange(2 * pairs, member.channels)
    half = -(-len(rest) // 2)
    second = np.full(half, _NONE)
    second[: len(rest) - half] = rest[half:]
    one = np.concatenate([2 * rotated if interleaved else rotated, rest[:half]])
    other = np.concatenate([2 * rotated + 1 if interleaved else rotated + pairs, second])
    columns = np.concatenate([rotated + column, np.full(half, _NONE)])
    heads = np.repeat(np.arange(member.heads), len(one))
    return Pairs(heads, *(np.tile(each, member.heads) for each in (one, other, columns)))


def are_aligned(places: npt.NDArray[np.int64]) -> bool:
    """Whether kernels can read and write eight channels at once at places of `Basis.places`."""
    runs = places[:, FIXED:].reshape(-1, _VECTOR)
    return bool(
        (places[:, 1] % 16 == 0).all()
        and (places[:, 2:4] % _VECTOR == 0).all()
        and (runs[:, 0] % _VECTOR == 0).all()
        and (np.diff(runs, axis=1) == 1).all()
    )


class Basis:
    """A group of a profile on a device.

    Attributes:
        width: Pairs of all tensors, filled up.
        tiles: Of each tensor, its first tile of pairs and the one behind its last.
        pairs: Of each tensor, filled up to whole tiles with pairs of no channels.
        planes: i8 [4 width, basis_width], as product_kernel takes them.
        channels: f32 [4, width], scales of first and second channels, then their means.
        columns: i32 [width], column of the rotation of each pair, -1 for none.
        increments: i64 [angles], of all rotations of the group.
        order: Channels of the group, [2, width], first and second ones of all pairs; -1 for none.
    """

    def __init__(self, profile: Profile, index: int, tiling: Tiling, device: torch.device) -> None:
        """Sends what is needed of a group."""
        group = profile.groups[index]
        self.group, self.tiling = group, tiling
        self._at: dict[int, tuple[tuple[int, int], npt.NDArray[np.int64]]] = {}
        used = sorted({m.rotation for m in group.members if m.rotation is not None})
        begins, increments = {}, [np.zeros(0, np.uint64)]
        for rotation in used:
            begins[rotation] = sum(map(len, increments))
            increments.append(profile.rotations[rotation].increments)
        self.angles = sum(map(len, increments))
        self.increments = send(np.concatenate(increments).view(np.int64), device)
        self.tiles: list[tuple[int, int]] = []
        self.pairs: list[Pairs] = []
        channels, first, tile = [], 0, 0
        for member in group.members:
            if member.rotation is None:
                pairs = pair_up(member, 0, False, 0)
            else:
                turn = profile.rotations[member.rotation]
                column = begins[member.rotation]
                pairs = pair_up(member, len(turn.increments), turn.interleaved, column)
            fill = -len(pairs.head) % tiling.pairs
            head = np.pad(pairs.head, (0, fill))
            filled = Pairs(
                head, *(np.pad(each, (0, fill), constant_values=_NONE) for each in pairs[1:])
            )
            self.pairs.append(filled)
            self.tiles.append((tile, tile := tile + len(head) // tiling.pairs))
            place = first + head * member.channels
            channels.append(
                [np.where(each < 0, _NONE, place + each) for each in (filled.first, filled.second)]
            )
            first += member.heads * member.channels
        both: npt.NDArray[np.int64] = np.concatenate(channels, axis=1)
        self.order = both
        self.width = both.shape[1]
        columns = np.concatenate([each.column for each in self.pairs])
        self.columns = send(columns.astype(np.int32), device)
        numbers = [group.scales[both], group.means[both]]
        self.channels = send(np.where(both < 0, np.float32(0), numbers).reshape(4, -1), device)
        self.basis_width = -(-group.components // tiling.components) * tiling.components
        self.planes = send(self._planes(both), device)

    def _planes(self, channels: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
        """High and low planes of the matrix, in the order of product_kernel."""
        vectors = np.zeros((self.group.decode.shape[1] + 1, self.basis_width), np.int16)
        vectors[:-1, : self.group.components] = self.group.decode.T
        high, low = (vectors >> 8).astype(np.int8), ((vectors & 255) - 128).astype(np.int8)
        # By fours of pairs, then part, then pair; the vector of no channel is the last, zeros.
        order = channels.reshape(2, -1, 4).transpose(1, 0, 2).ravel()
        return np.stack([high[order], low[order]], 1).reshape(-1, self.basis_width)

    def vectors(self, tile: int) -> torch.Tensor:
        """The matrix of a tile of pairs, f64 [2 pairs, basis_width]: all first channels first."""
        count = 4 * self.tiling.pairs
        planes = self.planes[tile * count : (tile + 1) * count].to(torch.float64)
        planes = planes.reshape(-1, 2, 4, 2, self.basis_width)
        whole = 256 * planes[..., 0, :] + planes[..., 1, :] + 128
        return whole.transpose(0, 1).reshape(-1, self.basis_width)

    def rotations(self, first: int, tokens: int) -> torch.Tensor:
        """Cosines and sines of tokens whose first one has this position in the model's input.

        Returns:
            f32 [tokens, angles, 2], flat; one that nobody reads where nothing rotates.
        """
        count = tokens * self.angles
        found = torch.empty(max(1, 2 * count), device=self.planes.device)
        if count:
            rotation_kernel[(-(-count // _ROTATIONS),)](
                self.increments,
                found,
                first,
                tokens,
                self.angles,
                BLOCK=_ROTATIONS,
                enable_fp_fusion=False,
            )
        return found

    def places(
        self, tensors: Mapping[int, torch.Tensor], units: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.int64]:
        """Where the channels of each tile of pairs lie, as kernels take it.

        Args:
            tensors: [batches, heads, tokens, channels] of any strides, by number of the member.
            units: Of each member.
        """
        places = []
        for member, tensor in tensors.items():
            batch, head, token, channel = tensor.stride()
            table = self._channels_at(member, head, channel).copy()
            table[:, 1:5] = tensor.data_ptr(), batch, token, int(units[member].view(np.int32))
            places.append(table)
        return np.concatenate(places)

    def _channels_at(self, member: int, head: int, channel: int) -> npt.NDArray[np.int64]:
        """The places of a tensor of these strides, without address, other strides, and unit.

        Those of the strides before are kept: caches of a model have the same.
        """
        kept = self._at.get(member)
        if kept is None or kept[0] != (head, channel):
            pairs, per = self.pairs[member], self.tiling.pairs
            both = [
                np.where(each < 0, _NONE, pairs.head * head + each * channel)
                for each in (pairs.first, pairs.second)
            ]
            inner = np.stack(both).reshape(2, -1, per).transpose(1, 0, 2).reshape(-1, 2 * per)
            tiles = np.arange(*self.tiles[member])[:, None]
            empty = np.zeros((len(tiles), FIXED - 1), np.int64)
            kept = (head, channel), np.hstack([tiles, empty, inner])
            self._at[member] = kept
        return kept[1]
