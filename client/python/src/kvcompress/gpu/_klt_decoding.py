# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Decodes payloads of `klt` in mode 2 on the device: as those of `ecsq`, with bases and products.

Parts of blocks share the scratch memory. Those of a part that begin within a run of blocks with the
same bases find them at its beginning, where they are copied to before.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu import _klt_kernels as kernels
from kvcompress.gpu._ecsq_decoding import EcsqDecoding
from kvcompress.gpu._klt import GROUP_COLUMNS, KltPayload
from kvcompress.gpu._place import Output, cut_by_size
from kvcompress.gpu._upload import ALIGNMENT, Held, send_all

_ROWS = 64  # tokens of a program that multiplies
_COLUMNS = 64  # channels of it
_STEP = 64  # components that it takes at once
_BASIS = 1 << 13  # numbers of a basis that a program makes

_Table = npt.NDArray[np.int64]


class KltDecoding(EcsqDecoding):
    """Payloads of one type of elements that are being decoded, all of mode 2."""

    _ENTROPY = kernels.klt_entropy_kernel
    _JOINT = True

    def __init__(self, held: Held, outputs: Sequence[Output], most: int) -> None:
        """Reads the payloads, and plans the launches."""
        super().__init__(held, outputs, most)
        self.scratch += 2 * self.bases + 2 * self.groups.nbytes
        self.scratch += ALIGNMENT * (1 + 2 * len(self.parts))

    def _read_payloads(self) -> None:
        """Reads the payloads."""
        payloads = [KltPayload(self.held.data, output) for output in self.outputs]
        self.payloads = payloads
        begin, groups, owners = 0, [np.zeros((0, GROUP_COLUMNS), np.int64)], []
        for payload in payloads:
            table = payload.groups.copy()
            table[:, 0] += begin
            groups.append(table)
            owners.append(payload.owner + begin)
            begin += len(payload.blocks)
        self.groups: _Table = np.concatenate(groups)
        self.owners: _Table = np.concatenate(owners)
        self.sizes: _Table = np.concatenate([payload.bases for payload in payloads])

    def _cut(self, numbers: _Table, most: int) -> list[slice]:
        """Cuts blocks into parts of at most so many bytes, and assigns each its places."""
        own = self.owners == np.arange(len(self.owners))
        bases = np.where(own, self.sizes, 0)
        parts = [part for part, _ in cut_by_size((4 * numbers + 2 * bases).tolist(), most)]
        self._place_numbers(parts, numbers)
        # Those that a part finds at its beginning.
        kept = int(self.sizes.max(initial=0)) if len(parts) > 1 else 0
        self.bases = 0
        self.copies: dict[int, tuple[int, int]] = {}  # place and size, by the part's first block
        place = 0
        for part in parts:
            owner = int(self.owners[part.start])
            size = 0 if owner == part.start or place == 0 else int(self.sizes[owner])
            self.copies[part.start] = place, size
            ends = kept + np.cumsum(bases[part])
            begins = np.where(own[part], ends - bases[part], 0)
            inside = self.owners[part] >= part.start
            inner = np.where(inside, self.owners[part] - part.start, 0)
            self.blocks[part, 22] = np.where(inside, begins[inner], 0)
            place = int(self.blocks[part.stop - 1, 22])
            self.bases = max(self.bases, int(ends[-1]))
        of = self.groups[:, 0]
        self.groups[:, 4] += self.blocks[of, 9]
        self.groups[:, 5] += self.blocks[of, 22]
        return parts

    def launch(self, slots: torch.Tensor) -> None:
        """Sends the payloads and launches the kernels; slots are those of `EcsqDecoding`."""
        self.matrices = torch.empty(self.bases, dtype=torch.int16, device=slots.device)
        super().launch(slots)

    def _launch_integers(
        self,
        part: slice,
        payloads: list[torch.Tensor],
        symbols: torch.Tensor,
        scratch: torch.Tensor,
        found: torch.Tensor,
    ) -> None:
        """Decodes the integers of blocks, and multiplies them by their bases."""
        super()._launch_integers(part, payloads, symbols, scratch, found)
        place, size = self.copies[part.start]
        if size:
            self.matrices[:size].copy_(self.matrices[place : place + size])
        first, end = np.searchsorted(self.groups[:, 0], [part.start, part.stop])
        groups = self.groups[first:end]
        owned = groups[groups[:, 3] >= 0]
        wanted = groups[self.blocks[groups[:, 0], 23] == 0]
        wanted[:, 0] -= part.start
        sent_owned, sent_wanted = send_all([owned, wanted], found.device)
        if len(owned):
            self._make_bases(owned, sent_owned, scratch)
        if len(wanted):
            blocks = self.blocks[part][wanted[:, 0]]
            tokens = int((blocks[:, 6] - blocks[:, 7]).max())
            row_tiles = max(1, -(-tokens // _ROWS))
            column_tiles = -(-int(wanted[:, 2].max()) // _COLUMNS)
            kernels.klt_product_kernel[(len(wanted), row_tiles, column_tiles)](
                *payloads[1:],
                sent_wanted,
                self.matrices,
                scratch,
                BM=_ROWS,
                BN=_COLUMNS,
                BK=_STEP,
                num_warps=4,
                enable_fp_fusion=False,
            )

    def _make_bases(self, groups: _Table, sent: torch.Tensor, scratch: torch.Tensor) -> None:
        """Makes the bases of groups of their reflectors."""
        widest, most = int(groups[:, 2].max()), int(groups[:, 3].max())
        rounded = max(16, 1 << (widest - 1).bit_length())
        if most:
            kernels.klt_reflectors_kernel[(len(groups), most)](
                sent, scratch, N=rounded, num_warps=4
            )
        columns = _BASIS // rounded
        kernels.klt_basis_kernel[(len(groups), -(-widest // columns))](
            sent, scratch, self.matrices, N=rounded, BN=columns, num_warps=4
        )
