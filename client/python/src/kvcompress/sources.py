# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What a call sends: the input, cut into the messages of a request stream."""

import io
import os
import threading
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

import numpy as np

from kvcompress.arrays import Array, data_type, little_endian_bytes
from kvcompress.errors import InvalidArgumentError
from kvcompress.v1 import compression_service_pb2 as service_pb2
from kvcompress.v1 import tensor_pb2

CHUNK_BYTES = 1 << 20

PathOrStr = str | os.PathLike[str]
Message = TypeVar("Message")
InputMessage = TypeVar("InputMessage", service_pb2.CompressRequest, service_pb2.MeasureRequest)


class Feed(Iterator[Message], Generic[Message]):
    """A request stream that says why it broke and can be ended from another thread.

    gRPC reads requests in a thread of its own and turns an exception there into a status
    without a cause; `error` keeps the cause.
    """

    def __init__(
        self, messages: Generator[Message, None, None], file: BinaryIO | None = None
    ) -> None:
        """Takes the messages to send, in order, and the file they are read from."""
        self.error: Exception | None = None
        self._messages = messages
        self._file = file
        self._lock = threading.Lock()

    def __next__(self) -> Message:
        """Gives the next message.

        Raises:
            StopIteration: There are no more, or the feed was closed.
        """
        with self._lock:
            try:
                return next(self._messages)
            except StopIteration:
                raise
            except Exception as error:
                self.error = error
                raise

    def close(self) -> None:
        """Ends the stream and releases what it reads from."""
        with self._lock:
            self._messages.close()
            if self._file is not None:
                self._file.close()


def compress_feed(
    kind: type[InputMessage],
    options: service_pb2.CompressOptions,
    source: PathOrStr | bytes | Mapping[str, Array],
    metadata: Mapping[str, str] | None,
) -> Feed[InputMessage]:
    """Gives the requests of Compress or Measure.

    Args:
        kind: The class of the messages.
        options: The first message's content.
        source: Path or bytes of a safetensors file, or arrays by name.
        metadata: With arrays only: metadata of the file that they stand for.

    Returns:
        The feed. Memory is bounded by a chunk, and by one array if its layout needs a copy.

    Raises:
        InvalidArgumentError: An array cannot be compressed, or there is metadata with a file.
        OSError: The file cannot be opened.
        TypeError: The source is none of these.
    """
    first = kind(options=options)
    if isinstance(source, Mapping):
        return Feed(_array_messages(kind, first, source, metadata or {}))
    if metadata is not None:
        raise InvalidArgumentError("metadata goes with arrays; a file has its own")
    file = open_source(source)

    def messages() -> Generator[InputMessage, None, None]:
        yield first
        while chunk := file.read(CHUNK_BYTES):
            yield kind(safetensors=chunk)

    return Feed(messages(), file)


def decompress_feed(
    options: service_pb2.DecompressOptions, source: PathOrStr | bytes
) -> Feed[service_pb2.DecompressRequest]:
    """Gives the requests of Decompress.

    Args:
        options: The first message's content.
        source: Path or bytes of an artefact.

    Returns:
        The feed.

    Raises:
        OSError: The file cannot be opened.
        TypeError: The source is none of these.
    """
    file = open_source(source)

    def messages() -> Generator[service_pb2.DecompressRequest, None, None]:
        yield service_pb2.DecompressRequest(options=options)
        while chunk := file.read(CHUNK_BYTES):
            yield service_pb2.DecompressRequest(artefact=chunk)

    return Feed(messages(), file)


def open_source(source: PathOrStr | bytes) -> BinaryIO:
    """Opens a path, or bytes as if they were a file.

    Raises:
        OSError: The file cannot be opened.
        TypeError: The source is neither.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return io.BytesIO(source)
    if isinstance(source, str | os.PathLike):
        return Path(source).open("rb")
    raise TypeError(f"a path, bytes or a mapping of arrays is needed, not {type(source).__name__}")


def _array_messages(
    kind: type[InputMessage],
    first: InputMessage,
    arrays: Mapping[str, Array],
    metadata: Mapping[str, str],
) -> Generator[InputMessage, None, None]:
    """Gives `first`, the table, then the bytes of the arrays; checks before it returns."""
    table = tensor_pb2.TensorTable(metadata=dict(metadata))
    for name, array in arrays.items():
        dtype = data_type(np.asarray(array))
        if dtype is None:
            raise InvalidArgumentError(
                f"tensor {name!r} is {np.asarray(array).dtype}, not float32, float16 or bfloat16",
                reason="UNSUPPORTED_DTYPE",
                tensor=name,
            )
        table.tensors.add(name=name, dtype=dtype, shape=np.shape(array))

    def messages() -> Generator[InputMessage, None, None]:
        yield first
        yield kind(tensors=table)
        for name, array in arrays.items():
            data = little_endian_bytes(np.asarray(array))
            for start in range(0, len(data), CHUNK_BYTES):
                chunk = bytes(data[start : start + CHUNK_BYTES])
                yield kind(tensor_data=tensor_pb2.TensorChunk(name=name, data=chunk))

    return messages()
