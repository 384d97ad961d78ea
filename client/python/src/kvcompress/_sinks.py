# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Destinations of responses: a file that appears whole or not at all, or memory."""

import os
import secrets
import stat
import struct
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from kvcompress._arrays import Array, ArrivingArrays
from kvcompress.errors import DataLossError
from kvcompress.v1 import tensor_pb2

OnTensor = Callable[[str, Array], object]
"""Is called with the name of a tensor and its array."""


class Sink(AbstractContextManager["Sink"]):
    """Takes bytes at positions; leaving the `with` block without `commit` discards them."""

    def __exit__(self, *_: object) -> None:
        """Closes the sink, whatever ended the block."""
        self.close()

    @abstractmethod
    def write(self, offset: int, data: bytes) -> None:
        """Puts bytes at a position.

        Raises:
            OSError: They cannot be written.
        """

    @abstractmethod
    def beginning(self) -> bytes:
        """Gives the first 8 bytes, or as many as there are."""

    @abstractmethod
    def commit(self) -> None:
        """Makes what was written final.

        Raises:
            OSError: It cannot be; nothing has changed.
        """

    @abstractmethod
    def close(self) -> None:
        """Releases what the sink holds, and discards what was not committed."""

    @property
    @abstractmethod
    def data(self) -> bytes | None:
        """A copy of the bytes, or None when they went to a file."""


class MemorySink(Sink):
    """Keeps the bytes in memory."""

    def __init__(self) -> None:
        """Begins empty."""
        self._data = bytearray()

    def write(self, offset: int, data: bytes) -> None:
        """Puts bytes at a position; a gap before it is filled with zeros."""
        self._data.extend(bytes(max(0, offset - len(self._data))))
        self._data[offset : offset + len(data)] = data

    def beginning(self) -> bytes:
        """Gives the first 8 bytes, or as many as there are."""
        return bytes(self._data[:8])

    def commit(self) -> None:
        """Has nothing to do."""

    def close(self) -> None:
        """Has nothing to do."""

    @property
    def data(self) -> bytes:
        """A copy of the bytes."""
        return bytes(self._data)


class TensorSink(MemorySink):
    """Keeps the bytes of a safetensors file in memory, and tells of each tensor that is there."""

    def __init__(self, on_tensor: OnTensor) -> None:
        """Begins empty.

        Args:
            on_tensor: Is called with name and array, in the order of the file.
        """
        super().__init__()
        self._arrays = ArrivingArrays()
        self._on_tensor = on_tensor

    def write(self, offset: int, data: bytes) -> None:
        """Puts bytes at a position, and tells what they complete."""
        super().write(offset, data)
        for name, array in self._arrays.take(self._data):
            self._on_tensor(name, array)


class FileSink(Sink):
    """Writes next to the target, and renames over it when all is well.

    A link as the target is followed. The new file has the permissions that the process gives
    to new files.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Opens a temporary file in the target's directory.

        Args:
            path: The target; replaced if it is there.

        Raises:
            OSError: The directory cannot be written to.
            ValueError: The target is there and not a regular file.
        """
        self._target = Path(os.path.realpath(path))
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(self._target.stat().st_mode):
                raise ValueError(f"{os.fspath(path)!r} is not a regular file")
        self._partial = self._target.with_name(f".{secrets.token_hex(8)}.kvcompress-partial")
        self._file = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)

    def write(self, offset: int, data: bytes) -> None:
        """Writes bytes at a position.

        Raises:
            OSError: The disk is full or broken.
        """
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._file, rest, offset)
            rest, offset = rest[written:], offset + written

    def beginning(self) -> bytes:
        """Gives the first 8 bytes, or as many as there are."""
        return os.pread(self._file, 8, 0)

    def commit(self) -> None:
        """Flushes to the disk, then puts the file in the target's place.

        Raises:
            OSError: The disk is full or broken; the target is as it was.
        """
        os.fsync(self._file)
        self._partial.replace(self._target)
        directory = os.open(self._target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def close(self) -> None:
        """Closes, and removes the temporary file unless it became the target."""
        os.close(self._file)
        self._partial.unlink(missing_ok=True)

    @property
    def data(self) -> None:
        """None: the bytes are in the file."""
        return


def open_sink(path: str | os.PathLike[str] | None, on_tensor: OnTensor | None = None) -> Sink:
    """Gives a sink for a path, or one in memory, which may tell of tensors.

    Raises:
        OSError: The directory cannot be written to.
        ValueError: The path is there and not a regular file.
    """
    if path is not None:
        return FileSink(path)
    return MemorySink() if on_tensor is None else TensorSink(on_tensor)


class FileAssembler:
    """Writes the FileChunks of one file to their positions and checks that they cover it.

    Chunks ascend without gaps, except that the reserved bytes at the start come last.
    """

    def __init__(self, sink: Sink, reserved: int = 0) -> None:
        """Begins a file whose first `reserved` bytes come last."""
        self._sink = sink
        self._reserved = reserved
        self._head = 0
        self._end = reserved

    def take(self, chunk: tensor_pb2.FileChunk) -> None:
        """Writes a chunk.

        Raises:
            DataLossError: The chunk is not the next one, reason `BAD_STREAM`.
            OSError: It cannot be written.
        """
        size = len(chunk.data)
        if chunk.offset == self._end:
            self._end += size
        elif chunk.offset == self._head and self._head + size <= self._reserved:
            self._head += size
        else:
            raise DataLossError(
                "the answer's chunks have a gap or an overlap",
                reason="BAD_STREAM",
                offset=chunk.offset,
            )
        self._sink.write(chunk.offset, chunk.data)

    def finish(self, size: int) -> None:
        """Checks that the file is complete and of this size in bytes.

        Raises:
            DataLossError: It is not, reason `BAD_STREAM`.
        """
        if self._head != self._reserved or self._end != size:
            raise DataLossError(
                f"the answer has {self._end - self._reserved + self._head} bytes, not {size}",
                reason="BAD_STREAM",
            )

    def finish_safetensors(self, data_size: int) -> None:
        """Checks that the file is complete: its header and `data_size` bytes of tensors.

        Raises:
            DataLossError: It is not, reason `BAD_STREAM`.
        """
        beginning = self._sink.beginning()
        header = struct.unpack("<Q", beginning)[0] if len(beginning) == 8 else 0
        self.finish(8 + int(header) + data_size)
