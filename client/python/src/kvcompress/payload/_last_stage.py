# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`CODEC+lz4` and `CODEC+zstd`, "Byte compressors" of FORMAT.md.

Needs the package `lz4` or `zstandard` for chunks that are compressed.
"""

import importlib
import struct

from . import _lz4_block, _zstd_frame
from ._codec import Array, Codec, Entry, PayloadError

STAGES = ("lz4", "zstd")
_CHUNK = 131072


class LastStage:
    """A codec whose payload went through a general-purpose compressor, chunk by chunk."""

    fixed = False

    def __init__(self, inner: Codec, stage: str) -> None:
        """Takes the codec and the name of the stage."""
        self.inner = inner
        self.stage = stage

    def accepts(self, parameters: str) -> bool:
        """Whether the codec has these parameters."""
        return self.inner.accepts(parameters)

    def largest(self, parameters: str, shape: tuple[int, ...], dtype: str, role: str) -> int:
        """Returns the size bound: that of the codec, and the headers of chunks."""
        size = self.inner.largest(parameters, shape, dtype, role)
        return size + 8 * -(-size // _CHUNK)

    def decode(self, payload: bytes, entry: Entry) -> Array:
        """Decodes the chunks, then what the codec wrote."""
        parts, position, n = [], 0, _CHUNK
        while position < len(payload):
            if n < _CHUNK or len(payload) - position < 8:
                raise PayloadError("the last chunk is not at the end", tensor=entry.name)
            n, s = struct.unpack_from("<II", payload, position)
            body = payload[position + 8 : position + 8 + max(s, -(-n // 4))]
            position += 8 + max(s, -(-n // 4))
            if not 1 <= s <= n <= _CHUNK or position > len(payload) or any(body[s:]):
                raise PayloadError("a chunk breaks a rule", tensor=entry.name)
            parts.append(body if s == n else self._decompress(body[:s], n, entry.name))
        plain = b"".join(parts)
        largest = self.inner.largest(entry.parameters, entry.shape, entry.dtype, entry.role)
        if len(plain) > largest or (self.inner.fixed and len(plain) != largest):
            raise PayloadError("the chunks hold another size", tensor=entry.name)
        return self.inner.decode(plain, entry)

    def _decompress(self, data: bytes, size: int, tensor: str) -> bytes:
        """Decompresses one chunk of `size` bytes, of whose form nothing is left to the library."""
        package = {"lz4": "lz4.block", "zstd": "zstandard"}[self.stage]
        try:
            library = importlib.import_module(package)
        except ImportError:
            message = f"reading this needs the Python package {package.partition('.')[0]}"
            raise PayloadError(message, "UNIMPLEMENTED", tensor) from None
        failure = library.LZ4BlockError if self.stage == "lz4" else library.ZstdError
        try:
            if self.stage == "lz4":
                _lz4_block.check(data, size)
                plain = library.decompress(data, uncompressed_size=size)
            else:
                _zstd_frame.check(data, size)
                plain = library.ZstdDecompressor().decompress(data)
        except (ValueError, failure) as error:
            raise PayloadError(f"a chunk cannot be decompressed: {error}", tensor=tensor) from None
        if len(plain) != size:
            raise PayloadError("a chunk has another size", tensor=tensor)
        return bytes(plain)
