# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Which tokens of a group are sinks, by the rule of the service (core/profile/group_sinks.h)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

_SHORT = 0.4  # of the usual length: values of a sink have that at most
_FEWEST = 40  # tokens
_NEAR = 8  # sinks among these tokens are kept as integers
_FINER, _MOST = 12, 48  # quarter octaves


def find_sinks(values: Sequence[torch.Tensor]) -> npt.NDArray[np.int64]:
    """Returns the tokens whose values are short in most tensors, in any batch; waits for these.

    Args:
        values: [batches, heads, tokens, channels] each.
    """
    if not values or values[0].shape[2] < _FEWEST:
        return np.zeros(0, np.int64)
    tokens = values[0].shape[2]
    lengths = [torch.linalg.vector_norm(each, dim=(1, 3), dtype=torch.float32) for each in values]
    short = sum(each < _SHORT * each.kthvalue(tokens // 2 + 1, 1, True).values for each in lengths)
    found = (2 * torch.as_tensor(short) > len(values)).any(0)
    sinks: npt.NDArray[np.int64] = found.nonzero().flatten().cpu().numpy()
    return sinks


def integer_sinks(sinks: npt.NDArray[np.int64], tokens: int) -> int:
    """Returns how many first tokens of a cache are kept as integers, with these sinks."""
    near = sinks[sinks < _NEAR]
    return min(1 + int(near.max(initial=0)), tokens)


def refine(offsets: npt.NDArray[np.int8], sinks: npt.NDArray[np.int64]) -> None:
    """Makes steps of sinks finer."""
    offsets[sinks] = np.minimum(offsets[sinks].astype(np.int64) + _FINER, _MOST)
