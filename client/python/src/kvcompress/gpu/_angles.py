# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Cosines and sines that tensors of one call share where they rotate alike."""

from collections.abc import Sequence

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._product_kernels import rotation_kernel
from kvcompress.gpu._upload import send

_ROTATIONS = 256  # angles of a program


class Angles:
    """Places of angles, which are made all at once.

    Attributes:
        count: Angles of all tensors.
        increments: Turns of pairs that are sent for them.
        turns: How many kinds of them there are.
    """

    def __init__(self) -> None:
        """Starts without angles."""
        self._begins: dict[tuple[int, ...], int] = {}
        self.count = self.increments = self.turns = 0

    def place(self, increments: Sequence[int], first: int, tokens: int) -> int:
        """Returns where the angles of so many tokens begin, of [tokens, pairs]."""
        key = (first, tokens, *increments)
        if key not in self._begins:
            self._begins[key] = self.count
            self.count += tokens * len(increments)
            self.increments += len(increments)
            self.turns += 1
        return self._begins[key]

    def make(self, device: torch.device) -> torch.Tensor:
        """The cosine and the sine of each angle, f32, one behind the other."""
        rotations = torch.empty(max(1, 2 * self.count), device=device)
        for (first, tokens, *increments), begin in self._begins.items():
            pairs = len(increments)
            rotation_kernel[(-(-tokens * pairs // _ROTATIONS),)](
                send(np.array(increments, np.uint64).view(np.int64), device),
                rotations[2 * begin :],
                first,
                tokens,
                pairs,
                BLOCK=_ROTATIONS,
                enable_fp_fusion=False,
            )
        return rotations
