# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Saving tensors to a compressed file and loading them, with the signatures of safetensors."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Unpack

from kvcompress._arrays import Array
from kvcompress._client import Client
from kvcompress._reports import CompressionReport, InMemoryDecompressionResult
from kvcompress._requests import PathOrStr
from kvcompress.options import CompressArguments, RestoreArguments

if TYPE_CHECKING:
    import torch  # type: ignore[import-not-found,unused-ignore]


def save_file(
    tensors: "Mapping[str, Array | torch.Tensor]",
    filename: PathOrStr,
    metadata: Mapping[str, str] | None = None,
    *,
    client: Client | None = None,
    **options: Unpack[CompressArguments],
) -> CompressionReport:
    """Saves tensors to a compressed file, where `safetensors` has a function of this name.

    Without `codec` it is `auto`, which changes values within the server's default bounds;
    `codec="lossless"` changes none. Thread safe, as far as the client is.

    Args:
        tensors: By name, of any shape: NumPy arrays, or torch tensors on any device. Keys and
            values are [batch, heads, tokens, head_dim]; names such as `layer_0_key` set roles.
        filename: The file; appears whole or not at all, in the place of one that is there.
        metadata: Text by key, which `Client.decompress` returns.
        client: Compresses. None starts a server for this call, which takes tens of milliseconds.
        options: See `kvcompress.options.CompressArguments`.

    Returns:
        Sizes and quality; safetensors returns nothing.

    Raises:
        KVCompressError: The call failed; a QualityError, and no file, where a bound that was given
            does not hold.
        OSError: The file cannot be written, or no server can be started.
        TypeError: A tensor is neither, or an option has a name that there is not.
        ValueError: An option does not fit its field.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> import kvcompress
        >>> path = tempfile.mkdtemp() + "/cache.kvc.safetensors"
        >>> keys = np.ones((1, 2, 16, 64), np.float16)
        >>> kvcompress.save_file({"layer_0_key": keys}, path, codec="lossless")
        CompressionReport(lossless, ...)
        >>> kvcompress.load_file(path)["layer_0_key"].shape
        (1, 2, 16, 64)
    """
    with _given_or_own(client) as caller:
        return caller.compress(
            tensors, filename, overwrite=True, metadata=metadata, **options
        ).report


def load_file(
    filename: PathOrStr,
    *,
    client: Client | None = None,
    **options: Unpack[RestoreArguments],
) -> dict[str, Array]:
    """Loads what `save_file` or `Client.compress` wrote, after every check.

    Thread safe, as far as the client is. `kvcompress.torch.load_file` returns torch tensors.

    Args:
        filename: The file.
        client: Decompresses. None starts a server for this call, which takes tens of milliseconds.
        options: See `kvcompress.options.RestoreArguments`.

    Returns:
        Arrays by name in the order of the file, which can be written to. Types that NumPy lacks are
        those of ml_dtypes where that is installed, else bits; see `load_arrays`.

    Raises:
        KVCompressError: The call failed: DataLossError for a file that is damaged or not the one
            expected, FailedPreconditionError for one that is not compressed.
        OSError: The file cannot be read, or no server can be started.
        TypeError: An option has a name that there is not.
        ValueError: A shape is one that NumPy cannot hold.
    """
    result = decompressed(filename, client, options)
    return {name: array.copy() for name, array in result.tensors.items()}


def decompressed(
    filename: PathOrStr, client: Client | None, options: RestoreArguments
) -> InMemoryDecompressionResult:
    """Restores a file into memory, by a client or by a server for this call."""
    with _given_or_own(client) as caller:
        return caller.decompress(filename, **options)


@contextmanager
def _given_or_own(client: Client | None) -> Iterator[Client]:
    """Yields the client, or one with a server that ends with the block."""
    if client is not None:
        yield client
        return
    with Client() as own:
        yield own
