# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Saving and loading torch tensors, with the signatures of `safetensors.torch`.

from kvcompress.torch import load_file, save_file

save_file(tensors, "cache.kvc.safetensors", codec="lossless")
tensors = load_file("cache.kvc.safetensors", device="cuda")
"""

from typing import Unpack

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress._client import Client
from kvcompress._files import decompressed, save_file
from kvcompress._requests import PathOrStr
from kvcompress.options import RestoreArguments

__all__ = ["load_file", "save_file"]


def load_file(
    filename: PathOrStr,
    device: "str | int | torch.device" = "cpu",
    *,
    client: Client | None = None,
    **options: Unpack[RestoreArguments],
) -> "dict[str, torch.Tensor]":
    """Loads what `save_file` or `Client.compress` wrote, after every check.

    Thread safe, as far as the client is.

    Args:
        filename: The file.
        device: Where the tensors go.
        client: Decompresses. None starts a server for this call, which takes tens of milliseconds.
        options: See `kvcompress.options.RestoreArguments`.

    Returns:
        Tensors by name in the order of the file, of the types and shapes that were saved.

    Raises:
        KVCompressError: As `kvcompress.load_file`.
        OSError: The file cannot be read, or no server can be started.
        RuntimeError: There is no such device.
        TypeError: An option has a name that there is not.
        ValueError: This torch has no such type.
    """
    tensors = decompressed(filename, client, options).torch_tensors()
    return {name: tensor.to(device) for name, tensor in tensors.items()}
