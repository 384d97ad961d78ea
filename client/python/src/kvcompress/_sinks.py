# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Destinations of responses: a file that appears whole or not at all, or memory."""

import os
import struct
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from kvcompress._arrays import Array, ArrivingArrays
from kvcompress._file_type import MAX_HEADER_BYTES
from kvcompress._output_file import UnfinishedFile, check_output, permissions_of
from kvcompress.errors import DataLossError
from kvcompress.v1 import tensor_pb2

# A header is as long as safetensors allows, behind its length.
_MAX_RESERVED_BYTES = 8 + MAX_HEADER_BYTES
_MAX_EMPTY_CHUNKS = 1000

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
        """Returns the first 8 bytes, or as many as there are."""

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
    """Keeps the bytes in memory, as many as were written.

    A gap, such as before a header that comes last, takes none: there is one run of bytes for
    each place where writing began.
    """

    def __init__(self) -> None:
        """Begins empty."""
        self._runs: list[tuple[int, bytearray]] = []

    def write(self, offset: int, data: bytes) -> None:
        """Puts bytes at a position where there are none yet."""
        for start, run in self._runs:
            if start + len(run) == offset:
                run.extend(data)
                return
        self._runs.append((offset, bytearray(data)))
        self._runs.sort(key=lambda run: run[0])

    def beginning(self) -> bytes:
        """Returns the first 8 bytes, or as many as there are."""
        start, first = self._runs[0] if self._runs else (0, bytearray())
        return bytes(first[:8]) if start == 0 else b""

    def commit(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""

    @property
    def data(self) -> bytes:
        """A copy of the bytes, which have no gap when they are complete."""
        return b"".join(run for _, run in self._runs)


class TensorSink(MemorySink):
    """Keeps the bytes of a safetensors file in memory, and reports each complete tensor."""

    def __init__(self, on_tensor: OnTensor) -> None:
        """Begins empty.

        Args:
            on_tensor: Is called with name and array, in the order of the file.
        """
        super().__init__()
        self._arrays = ArrivingArrays()
        self._on_tensor = on_tensor

    def write(self, offset: int, data: bytes) -> None:
        """Writes bytes at a position, and reports the tensors that they complete."""
        super().write(offset, data)
        for name, array in self._arrays.take(self._runs[0][1]):
            self._on_tensor(name, array)


class FileSink(Sink):
    """Writes a file that takes the target's name when all is well.

    A link as the target is followed.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, source: object = None, overwrite: bool = False
    ) -> None:
        """Opens a file without a name in the target's directory.

        Args:
            path: The target.
            source: What it is made from. Where that is the path of a file, the new file has its
                permissions; else those that the process gives to new files.
            overwrite: Whether it is replaced if it is there.

        Raises:
            AlreadyExistsError: The target is there and may not be replaced.
            OSError: The directory cannot be written to.
            ValueError: The target is there and not a regular file.
        """
        check_output(path, overwrite=overwrite)
        self._overwrite = overwrite
        self._file = UnfinishedFile(Path(os.path.realpath(path)), permissions_of(source))

    def write(self, offset: int, data: bytes) -> None:
        """Writes bytes at a position.

        Raises:
            OSError: The disk is full or broken.
        """
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._file.descriptor, rest, offset)
            rest, offset = rest[written:], offset + written

    def beginning(self) -> bytes:
        """Returns the first 8 bytes, or as many as there are."""
        return os.pread(self._file.descriptor, 8, 0)

    def commit(self) -> None:
        """Flushes to the disk, then puts the file in the target's place.

        Raises:
            AlreadyExistsError: The target has appeared and may not be replaced.
            OSError: The disk is full or broken; the target is as it was.
        """
        self._file.commit(overwrite=self._overwrite)

    def close(self) -> None:
        """Closes, and discards what did not become the target."""
        self._file.close()

    @property
    def data(self) -> None:
        """None: the bytes are in the file."""
        return


def open_sink(
    path: str | os.PathLike[str] | None,
    on_tensor: OnTensor | None = None,
    *,
    source: object,
    overwrite: bool,
) -> Sink:
    """Returns a sink for a path, or one in memory, which may report tensors.

    A file has the permissions of `source`, where that is the path of one.

    Raises:
        AlreadyExistsError: The path is there and may not be replaced.
        OSError: The directory cannot be written to.
        ValueError: The path is there and not a regular file.
    """
    if path is not None:
        return FileSink(path, source=source, overwrite=overwrite)
    return MemorySink() if on_tensor is None else TensorSink(on_tensor)


class FileAssembler:
    """Writes the FileChunks of one file to their positions and checks that they cover it.

    Chunks ascend without gaps, except that the reserved bytes at the start come last.
    """

    def __init__(self, sink: Sink, reserved: int = 0) -> None:
        """Begins a file whose first `reserved` bytes come last.

        Raises:
            DataLossError: These are more than any header has, reason `BAD_STREAM`.
        """
        if reserved > _MAX_RESERVED_BYTES:
            raise DataLossError(
                f"the answer announces a header of {reserved} bytes, above {_MAX_RESERVED_BYTES}",
                reason="BAD_STREAM",
                limit=_MAX_RESERVED_BYTES,
            )
        self._sink = sink
        self._reserved = reserved
        self._head = 0
        self._end = reserved
        self._empty = 0

    def take(self, chunk: tensor_pb2.FileChunk) -> None:
        """Writes a chunk.

        Raises:
            DataLossError: The chunk is not the next one, or one more of many that are empty,
                reason `BAD_STREAM`.
            OSError: It cannot be written.
        """
        size = len(chunk.data)
        self._empty += size == 0
        if self._empty > _MAX_EMPTY_CHUNKS:
            raise DataLossError(
                f"the answer has more than {_MAX_EMPTY_CHUNKS} empty chunks, so that it need not "
                "end",
                reason="BAD_STREAM",
                limit=_MAX_EMPTY_CHUNKS,
            )
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
