# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Work of the host on large payloads, side by side."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_MUCH = 16 << 20  # bytes that one thread digests in milliseconds
_THREADS = 4

T = TypeVar("T")
R = TypeVar("R")


def for_each(run: Callable[[T], R], items: Sequence[T], size: int) -> list[R]:
    """Calls a function that lets other threads run, as xxhash does, for items of `size` bytes.

    Raises:
        Exception: What the function raised for the first item that it raised something for.
    """
    if size < _MUCH:
        return [run(item) for item in items]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(run, items))
