# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Compresses what engines hold: NaN and infinity too, which codecs that quantize refuse.

Positions of padding, and slots that nothing was written to, hold such values in real engines.
"""

import warnings
from collections.abc import Mapping
from typing import Any, Unpack

from kvcompress._client import Client
from kvcompress._reports import CompressionResult
from kvcompress._requests import PathOrStr, Source
from kvcompress._torch_tensors import is_tensor
from kvcompress._warnings import CompressionWarning, depth_of_caller
from kvcompress.errors import InvalidArgumentError
from kvcompress.options import CompressArguments

_CODEC = "lossless"
NOT_FINITE = "NOT_FINITE"
"""The reason of the error, and the code of the warning."""
_NAMED = 3  # tensors that a warning names, at most


def compress(
    client: Client,
    source: Source,
    output: PathOrStr | None = None,
    *,
    overwrite: bool = False,
    metadata: Mapping[str, str] | None = None,
    require: bool = True,
    timeout: float | None = None,
    **options: Unpack[CompressArguments],
) -> CompressionResult:
    """Compresses as `Client.compress` does; with `lossless` where values are not finite.

    A CompressionWarning, `NOT_FINITE`, says so, and the report has the codec.

    Raises:
        As `Client.compress`, but for what is not finite.
    """

    def call(options: CompressArguments) -> CompressionResult:
        return client.compress(
            source,
            output,
            overwrite=overwrite,
            metadata=metadata,
            require=require,
            timeout=timeout,
            **options,
        )

    try:
        return call(options)
    except InvalidArgumentError as error:
        if error.reason != NOT_FINITE:
            raise
        _warn(source, error)
    kept: CompressArguments = {**options, "codec": _CODEC}
    kept.pop("profile", None)
    kept.pop("attention", None)
    return call(kept)


def names_not_finite(tensors: Mapping[str, Any]) -> list[str]:
    """Returns the names of the torch tensors that have NaN or infinity."""
    # As float32: torch does not report it for some types of 8 bits.
    return [
        name
        for name, each in tensors.items()
        if is_tensor(each) and not bool(each.float().isfinite().all())
    ]


def _warn(source: Source, error: InvalidArgumentError) -> None:
    """Warns of what is kept, and why, before it is written: a warning may be an error."""
    names = names_not_finite(source) if isinstance(source, Mapping) else []
    named = ", ".join(names[:_NAMED]) or error.tensor
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    warnings.warn(
        f"{NOT_FINITE}: NaN or infinity, which cannot be quantized, in {named}{more}: all tensors "
        f"of the call are kept without loss, with {_CODEC}; codec='auto' keeps only these so; set "
        "positions that nobody reads, such as padding, to 0",
        CompressionWarning,
        stacklevel=depth_of_caller(),
    )
