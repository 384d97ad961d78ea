# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Encodes tensors to payloads of `int4` and `int8` on the device."""

import math
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.errors import InvalidArgumentError
from kvcompress.gpu._integers import BLOCK, Form
from kvcompress.gpu._place import Range, geometry, whole_output
from kvcompress.gpu._quantize_kernel import quantize_kernel
from kvcompress.gpu._upload import send
from kvcompress.payload._codec import Entry


class Source(NamedTuple):
    """A tensor to encode, and what its entry in the manifest says."""

    entry: Entry
    tensor: torch.Tensor


class Quantizing:
    """Tensors that are encoded in one form.

    Args:
        bits: Of a code, 4 or 8.
        group: Elements that share a scale.
        sources: The tensors, of F32, F16 and BF16.
    """

    def __init__(self, bits: int, group: int, sources: Sequence[Source]) -> None:
        """Plans where the payloads go."""
        self.bits, self.group, self.sources = bits, group, sources
        self.begins, position = [], 0
        for source in sources:
            form = Form(bits, group, False, source.entry.dtype)
            self.begins.append(position)
            position += form.size(source.tensor.numel())
        self.begins.append(position)

    def run(self, device: torch.device) -> list[torch.Tensor]:
        """Encodes and returns the payloads, on the device.

        Raises:
            InvalidArgumentError: An element has no code.
        """
        payloads = torch.empty(self.begins[-1], dtype=torch.uint8, device=device)
        launched = []
        for dtype in dict.fromkeys(source.entry.dtype for source in self.sources):
            numbers = [i for i, each in enumerate(self.sources) if each.entry.dtype == dtype]
            launched.append(self._launch(dtype, numbers, payloads))
        for blocks, numbers, found in launched:
            broken = found.cpu().numpy()
            if broken.any():
                number, _, first, count = blocks[int(broken.argmax())].tolist()
                self._refuse(self.sources[numbers[number]], first, count)
        return [
            payloads[begin:end]
            for begin, end in zip(self.begins[:-1], self.begins[1:], strict=True)
        ]

    def _launch(
        self, dtype: str, numbers: list[int], payloads: torch.Tensor
    ) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.int64]], list[int], torch.Tensor]:
        """Encodes the tensors of one type."""
        device, form = payloads.device, Form(self.bits, self.group, False, dtype)
        tables, outputs, kept = [np.zeros((0, 4), np.int64)], [], []
        for row, number in enumerate(numbers):
            entry, tensor = self.sources[number]
            if len(entry.shape) not in (3, 4):
                tensor = tensor.contiguous()
            elif len(entry.shape) == 3:
                tensor = tensor.unsqueeze(0)
            # A copy lives until the kernel has read it.
            kept.append(tensor)
            outputs.append(whole_output(entry, tensor, Range(0, geometry(entry)[2])))
            firsts = np.arange(0, math.prod(entry.shape), BLOCK)
            counts = np.minimum(math.prod(entry.shape) - firsts, BLOCK)
            at = self.begins[number] + firsts // BLOCK * form.size(BLOCK)
            tables.append(np.stack([np.full(len(firsts), row), at, firsts, counts], 1))
        blocks = np.concatenate(tables)
        found = torch.zeros(len(blocks), dtype=torch.int32, device=device)
        if len(blocks):
            quantize_kernel[(len(blocks),)](
                payloads,
                send(blocks, device),
                send(np.array([output.place for output in outputs], np.int64), device),
                torch.arange(max(output.tokens for output in outputs), device=device),
                found,
                GROUP=self.group,
                BITS=self.bits,
                DTYPE=dtype,
                SPLIT=False,
                BLOCK=BLOCK,
                num_warps=4,
                enable_fp_fusion=False,
            )
        return blocks, numbers, found

    def _refuse(self, source: Source, first: int, count: int) -> NoReturn:
        """Refuses a tensor for an element of a block."""
        entry, name = source.entry, f"int{self.bits}"
        values = source.tensor.reshape(-1)[first : first + count].to(torch.float32)
        if not values.isfinite().all():
            refuse_infinite(source, name, first)
        element = first + int(values.abs().argmax())
        raise InvalidArgumentError(
            f"tensor {entry.name!r} has an element {element} that is too large for {name}: it "
            "exceeds the range of its group's scale; use lossless or ecsq",
            reason="SCALE_OVERFLOW",
            tensor=entry.name,
            element=element,
        )


def refuse_infinite(source: Source, codec: str, first: int = 0) -> NoReturn:
    """Refuses a tensor for its first element, from one on, that is not finite."""
    values = source.tensor.reshape(-1)[first:]
    element = first + int((~values.isfinite()).nonzero()[0])
    raise InvalidArgumentError(
        f"tensor {source.entry.name!r} has NaN or infinity at element {element}, which {codec} "
        "cannot hold: use lossless, or set positions that nobody reads to 0",
        reason="NOT_FINITE",
        tensor=source.entry.name,
        element=element,
    )
