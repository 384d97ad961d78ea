# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Launches the kernels that encode with `ecsq`: measures values, and encodes blocks."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu import _ecsq_encode_kernels as coding
from kvcompress.gpu import _ecsq_quantize_kernels as quantizing
from kvcompress.gpu._device import has_ptx
from kvcompress.gpu._ecsq_choices import MAX_ERROR, codes_of, norms_of
from kvcompress.gpu._ecsq_integers import exception_list
from kvcompress.gpu._ecsq_kernels import ecsq_elements_kernel
from kvcompress.gpu._ecsq_plan import ROWS, Plan
from kvcompress.gpu._encoding_tables import Symbols, symbol_costs
from kvcompress.gpu._place import Range, whole_output
from kvcompress.gpu._upload import send, send_all
from kvcompress.payload import payload_size
from kvcompress.payload._dtypes import SIZES

_COLUMNS = 256  # channels of a program
_ELEMENTS = 1024  # of a program
_LIST = 256  # numbers that are counted at once
_COPIED, _COPIES = 1024, 16  # bytes that a program copies at once; programs of a block
_HEADER = 24  # bytes of that of a block
_MOST_BESIDES = 1024  # bytes of a block, besides 4 for each element
_BORDERS = np.cumprod(
    [float.fromhex("0x1.ae89f995ad3adp-8"), *[float.fromhex("0x1.6a09e667f3bcdp0")] * 70]
)
_MAX_MEAN = 1 << 18

_Table = npt.NDArray[np.int64]


class Coded(NamedTuple):
    """Blocks on the device, in the order of a plan.

    Attributes:
        data: u8, the blocks of each part.
        sizes: Of the blocks.
    """

    data: list[torch.Tensor]
    sizes: npt.NDArray[np.int64]

    def fits(self, plan: Plan, number: int) -> bool:
        """Whether a tensor takes no more bytes than a payload may."""
        job, (first, _, end, _) = plan.jobs[number], plan.ends[number].tolist()
        sizes = self.sizes[first:end]
        most = 4 * plan.elements[first:end, 1] + _MOST_BESIDES
        whole = len(job.header()) + int(sizes.sum())
        entry = job.entry
        bound = payload_size(entry.codec, entry.shape, entry.dtype, entry.role)
        return bool((sizes <= most).all()) and whole <= bound

    def pieces(self, plan: Plan, number: int) -> list[bytes | torch.Tensor]:
        """The payload of a tensor."""
        first, _, end, _ = plan.ends[number].tolist()
        pieces: list[bytes | torch.Tensor] = [plan.jobs[number].header()]
        for part, data in zip(plan.parts, self.data, strict=True):
            own = slice(max(first, part.start), min(end, part.stop))
            if own.start < own.stop:
                begin = int(self.sizes[part.start : own.start].sum())
                pieces.append(data[begin : begin + int(self.sizes[own].sum())])
        return pieces


class EcsqEncoding:
    """Encodes the tensors of a plan.

    Args:
        plan: The tensors.

    Attributes:
        restored: By tensor, what its blocks restore to, where that was asked for.
    """

    def __init__(self, plan: Plan) -> None:
        """Sends the tables of symbols."""
        self.plan, self.restored = plan, list[torch.Tensor]()
        self.dtype = plan.jobs[0].entry.dtype
        borders = np.full(128, np.inf)
        borders[: len(_BORDERS)] = _BORDERS
        arrays: list[npt.NDArray[np.generic]] = [*Symbols.get(), symbol_costs(), borders]
        self.symbols, self.largest, self.thresholds, self.costs, self.borders = send_all(
            arrays, plan.device
        )

    def find_norms(self) -> None:
        """Finds the norms of the tensors that have them."""
        plan = self.plan
        tiles = plan.tiles()
        if not len(tiles):
            return
        squares = torch.empty(plan.rows, dtype=torch.float64, device=plan.device)
        quantizing.squares_kernel[(len(tiles),)](
            *(send(tiles, plan.device), plan.tensors, plan.places, squares),
            BM=ROWS,
            DTYPE=self.dtype,
            enable_fp_fusion=False,
        )
        row = 0
        for job in plan.jobs:
            if job.norms:
                end = row + job.shape[0] * job.shape[1]
                job.codes = job.bounded = codes_of(squares[row:end], job.shape[2])
                norms = norms_of(job.codes)
                one = torch.ones_like(norms)
                job.scales = [torch.where(norms == 0, 0, one / torch.where(norms == 0, one, norms))]
                row = end

    def measure(self) -> torch.Tensor:
        """Finds means and variances of channels.

        Returns:
            f64 [jobs, 2]: of each tensor the sum of the squares that its means leave, and its
            largest magnitude.
        """
        plan, device = self.plan, self.plan.device
        scales = plan.scales()
        sums = torch.empty(2, plan.channels, dtype=torch.float64, device=device)
        largest = torch.zeros(len(plan.jobs), dtype=torch.int32, device=device)
        quantizing.measure_kernel[(len(plan.blocks), -(-int(plan.widths.max()) // _COLUMNS))](
            *(plan.sent, plan.tensors, plan.places, plan.rotations, scales, sums, largest),
            *(len(scales), plan.rows, plan.channels),
            DTYPE=self.dtype,
            BC=_COLUMNS,
            num_warps=4,
            enable_fp_fusion=False,
        )
        blocks = plan.blocks
        counts = np.repeat(blocks[:, 6] - (blocks[:, 8] == 0), plan.widths).astype(np.float64)
        divisors, wholes = send_all([np.maximum(counts, 1), counts], device)
        means, squares = sums[0] / divisors, sums[1] / divisors
        variances = (squares - means * means).clamp(min=0)
        left = []
        for job, (_, first, _, end) in zip(plan.jobs, plan.ends.tolist(), strict=True):
            job.means, job.variances = means[first:end], variances[first:end]
            left.append((job.variances * wholes[first:end]).sum())
        found = largest.view(torch.float32).to(torch.float64)
        return torch.stack([torch.stack(left), found], 1)

    def encode(self, *, rate: bool, checks: bool) -> Coded:
        """Encodes all blocks with the steps of the tensors.

        Args:
            rate: Whether errors are weighed against bits.
            checks: Whether blocks are restored, and exceptions made of large errors.
        """
        plan = self.plan
        plan.send_headers()
        side, self.sinks = self._side(), self._make_sinks()
        if checks:
            self.restored = [
                torch.empty_like(job.tensor, memory_format=torch.contiguous_format)
                for job in plan.jobs
            ]
        data, sizes = [], []
        for part in plan.parts:
            blocks = plan.sent[part]
            scratch = self._quantize(part, blocks, side, rate)
            fits, coded, found = self._code(part, blocks, scratch)
            empty = np.zeros((len(blocks), 2), np.int64), b""
            extra, exceptions = self._check(part, blocks, scratch) if checks else empty
            counts = found.cpu().numpy().astype(np.int64)
            own = 2 * counts[:, 0] + counts[:, 1] + counts[:, 2] + extra[:, 1] + self._fixed(part)
            rows = np.column_stack([np.cumsum(own) - own, extra])
            data.append(
                self._assemble(blocks, fits, coded, found, rows, exceptions, int(own.sum()))
            )
            sizes.append(own)
        return Coded(data, np.concatenate(sizes))

    def _fixed(self, part: slice) -> _Table:
        """Bytes of headers, states and sinks of blocks."""
        plan = self.plan
        blocks, widths = plan.blocks[part], plan.widths[part]
        found: _Table = _HEADER + 4 * np.minimum(widths, 32)
        return found + blocks[:, 7] * (2 * blocks[:, 5] + widths)

    def _side(self) -> list[torch.Tensor]:
        """Classes i32 and means i32 of channels, norms i32, and what values are scaled with."""
        plan, jobs = self.plan, self.plan.jobs
        sizes = (plan.ends[:, 3] - plan.ends[:, 1]).tolist()
        step = send(np.repeat([float(job.step) for job in jobs], sizes), plan.device)
        ratio = torch.cat([job.variances for job in jobs]) / step / step
        classes = torch.searchsorted(self.borders[: len(_BORDERS)], ratio, right=True)
        quotient = torch.cat([job.means for job in jobs]) / (step / 8)
        whole = quotient.abs().trunc()
        whole += ((quotient.abs() - whole) >= 0.5).to(torch.float64)
        means = torch.copysign(whole.clamp(max=_MAX_MEAN), quotient).to(torch.int32)
        none = torch.empty(0, dtype=torch.int32, device=plan.device)
        norms = torch.cat([none, *(job.bounded for job in jobs if job.norms)])
        return [classes.to(torch.int32), means, norms, plan.scales()]

    def _make_sinks(self) -> torch.Tensor:
        """Integer sinks, u8: of each block that has them the scales, then the codes."""
        plan, heads = self.plan, self.plan.sink_heads()
        sinks = torch.empty(plan.sink_bytes, dtype=torch.uint8, device=plan.device)
        if len(heads):
            width = max(job.shape[2] for job in plan.jobs)
            quantizing.sinks_kernel[(len(heads),)](
                *(send(heads, plan.device), plan.sent, plan.tensors, plan.places, sinks),
                DTYPE=self.dtype,
                BD=max(2, 1 << (width - 1).bit_length()),
                enable_fp_fusion=False,
            )
        return sinks

    def _quantize(
        self, part: slice, blocks: torch.Tensor, side: list[torch.Tensor], rate: bool
    ) -> torch.Tensor:
        """The integers of blocks."""
        plan, (classes, means, norms, scales) = self.plan, side
        numbers = plan.numbers[part]
        scratch = torch.empty(int(numbers.sum()), dtype=torch.int32, device=plan.device)
        quantizing.quantize_block_kernel[(len(blocks), -(-int(numbers.max()) // _ELEMENTS))](
            *(blocks, plan.tensors, plan.places, plan.rotations, scales, classes, means, norms),
            *(self.thresholds, scratch, len(scales), plan.rows),
            DTYPE=self.dtype,
            RATE=rate,
            BLOCK=_ELEMENTS,
            num_warps=4,
            enable_fp_fusion=False,
        )
        return scratch

    def _code(
        self, part: slice, blocks: torch.Tensor, scratch: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
        """Chooses tables and encodes.

        Returns:
            The choices i32 [blocks, 6]; words, escapes, low bits and states; and sizes
            i32 [blocks, 3].
        """
        plan, count, size, device = self.plan, len(blocks), len(scratch), self.plan.device

        def empty(length: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.empty(length, dtype=dtype, device=device)

        fits = torch.zeros(count, 6, dtype=torch.int32, device=device)
        coding.fit_kernel[(count, 3)](
            *(scratch, blocks, plan.tensors, self.costs, self.borders, fits),
            BLOCK=_LIST,
            num_warps=4,
        )
        words, escapes = empty(size, torch.int16), empty(6 * size, torch.uint8)
        lows = torch.zeros(size // 2 + 2 * count + 2, dtype=torch.int32, device=device)
        states = empty(32 * count, torch.int32)
        sizes = torch.empty(count, 3, dtype=torch.int32, device=device)
        coding.encode_block_kernel[(count,)](
            *(scratch, blocks, plan.tensors, fits, self.symbols, self.largest),
            *(words, escapes, lows, states, sizes),
            PTX=has_ptx(device),
            num_warps=1,
        )
        return fits, [words, escapes, lows, states], sizes

    def _check(
        self, part: slice, blocks: torch.Tensor, scratch: torch.Tensor
    ) -> tuple[_Table, bytes]:
        """Restores blocks, and makes exceptions of elements that are too far off.

        Returns:
            Of each block where its exceptions begin and their bytes; and all exceptions.
        """
        plan, device = self.plan, self.plan.device
        outputs = [
            whole_output(job.entry, restored, Range(0, job.shape[1]))
            for job, restored in zip(plan.jobs, self.restored, strict=True)
        ]
        places = send(np.array([output.place for output in outputs], np.int64), device)
        most = int(plan.elements[part, 1].max())
        ecsq_elements_kernel[(len(blocks), -(-most // _ELEMENTS))](
            *(self.sinks, blocks, plan.tensors, places),
            torch.arange(max(output.tokens for output in outputs), device=device),
            *(plan.rotations, scratch, torch.zeros(len(blocks), dtype=torch.int32, device=device)),
            DTYPE=self.dtype,
            SIZE=SIZES[self.dtype],
            SPLIT=False,
            JOINT=False,
            BLOCK=_ELEMENTS,
            num_warps=4,
            enable_fp_fusion=False,
        )
        return self._exceptions(part)

    def _exceptions(self, part: slice) -> tuple[_Table, bytes]:
        """Replaces what is too far off by the elements of the source, and lists these."""
        plan, lists, position = self.plan, [], 0
        rows = np.zeros((part.stop - part.start, 2), np.int64)
        for number, (first, _, end, _) in enumerate(plan.ends.tolist()):
            own = slice(max(first, part.start), min(end, part.stop))
            if own.start >= own.stop:
                continue
            elements = plan.elements[own]
            run = slice(int(elements[0, 0]), int(elements[-1].sum()))
            at, bits = self._replace(number, run)
            blocks = np.searchsorted(elements[:, 0], at, side="right") - 1
            for block in np.unique(blocks).tolist():
                some = blocks == block
                data = exception_list(at[some] - elements[block, 0], bits[some])
                rows[own.start - part.start + block] = position, len(data)
                lists.append(data)
                position += len(data)
        return rows, b"".join(lists)

    def _replace(self, number: int, run: slice) -> tuple[_Table, npt.NDArray[np.uint8]]:
        """Replaces elements of a run of a tensor that are too far off.

        Returns:
            Their places in the flattened tensor, and their bytes u8 [., size].
        """
        x = self.plan.jobs[number].tensor.reshape(-1)[run]
        y = self.restored[number].reshape(-1)[run]
        far = ((y.to(torch.float32) - x.to(torch.float32)).abs() > float(MAX_ERROR)).nonzero()[:, 0]
        y[far] = x[far]
        bits = x[far].cpu().view(torch.uint8).numpy().reshape(len(far), SIZES[self.dtype])
        return far.cpu().numpy() + run.start, bits

    def _assemble(
        self,
        blocks: torch.Tensor,
        fits: torch.Tensor,
        coded: list[torch.Tensor],
        sizes: torch.Tensor,
        rows: _Table,
        exceptions: bytes,
        size: int,
    ) -> torch.Tensor:
        """Puts the parts of blocks together."""
        device = self.plan.device
        held = np.frombuffer(exceptions or b"\0", np.uint8)
        sent, extra = send_all([rows, held], device)
        out = torch.empty(size, dtype=torch.uint8, device=device)
        copies = _COPIES if device.type == "cuda" else 1
        coding.assemble_block_kernel[(len(blocks), copies)](
            *(blocks, self.plan.tensors, fits, *(each.view(torch.uint8) for each in coded)),
            *(self.sinks, extra, sizes, sent, out),
            BLOCK=_COPIED,
            num_warps=4,
        )
        return out
