# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Reports how much of the input has been sent: to a bar of tqdm, or to a function."""

from collections.abc import Iterator
from contextlib import contextmanager

from kvcompress._requests import ProgressCallback, Source, source_size

Progress = bool | ProgressCallback
"""True draws a bar on stderr (needs tqdm); a function is called with counts of bytes sent."""


@contextmanager
def open_progress(progress: Progress, source: Source) -> Iterator[ProgressCallback]:
    """Yields the function to call with the number of bytes sent; the block's end ends the bar.

    Raises:
        ImportError: A bar is asked for and tqdm is not installed.
        OSError: The source cannot be looked at.
    """
    if callable(progress):
        yield progress
    elif progress:
        try:
            from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]
        except ImportError as error:
            raise ImportError("a bar needs tqdm: pip install tqdm") from error
        with tqdm(total=source_size(source), unit="B", unit_scale=True) as bar:
            yield bar.update
    else:
        yield lambda size: None
