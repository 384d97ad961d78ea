# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Request streams: the input of a call, cut into messages."""

import io
import os
import stat
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Generic, TypeVar, Union

import numpy as np

from kvcompress._arrays import Array, data_type, file_header, little_endian_bytes, table_bytes
from kvcompress._inputs import open_input
from kvcompress._torch_tensors import dtype_name, is_tensor, tensor_bits
from kvcompress.errors import InvalidArgumentError
from kvcompress.v1 import compression_service_pb2 as service_pb2
from kvcompress.v1 import tensor_pb2

if TYPE_CHECKING:
    import torch  # type: ignore[import-not-found,unused-ignore]

CHUNK_BYTES = 1 << 20

PathOrStr = str | os.PathLike[str]
Source = PathOrStr | bytes | Mapping[str, Union[Array, "torch.Tensor"]]
"""What can be compressed: path or bytes of a safetensors file, or tensors by name."""

ProgressCallback = Callable[[int], object]
"""Is called with the number of bytes of each piece of input, from the thread that sends it."""

Message = TypeVar("Message")
InputMessage = TypeVar("InputMessage", service_pb2.CompressRequest, service_pb2.MeasureRequest)


def is_rereadable(source: object) -> bool:
    """Returns whether another attempt can read all of a source again: not so for a pipe."""
    if not isinstance(source, str | os.PathLike):
        return True
    try:
        return stat.S_ISREG(Path(source).stat().st_mode)
    except OSError:
        return False


class RequestStream(Iterator[Message], Generic[Message]):
    """A request stream that keeps the error that broke it and can be ended by another thread.

    gRPC reads requests in a thread of its own and turns an exception there into a status
    without a cause; `error` keeps the cause.
    """

    def __init__(
        self, messages: Generator[Message, None, None], file: BinaryIO | None = None
    ) -> None:
        """Takes the messages to send, in order, and the file they are read from."""
        self.error: BaseException | None = None
        self._messages = messages
        self._file = file
        self._lock = threading.Lock()

    def __next__(self) -> Message:
        """Returns the next message.

        Raises:
            StopIteration: There are no more, or the stream was closed.
            RuntimeError: Reading them failed, or a callback did; `error` has the cause.
        """
        with self._lock:
            try:
                return next(self._messages)
            except StopIteration:
                raise
            except BaseException as error:
                self.error = error
                # Of anything but an Exception gRPC's thread dies, and its call waits forever.
                raise RuntimeError("the requests of a call ended by an error") from error

    def close(self) -> None:
        """Ends the stream and releases what it reads from."""
        with self._lock:
            self._messages.close()
            if self._file is not None:
                self._file.close()


def compress_requests(
    kind: type[InputMessage],
    options: service_pb2.CompressOptions,
    source: Source,
    metadata: Mapping[str, str] | None,
    advance: ProgressCallback,
) -> RequestStream[InputMessage]:
    """Returns the requests of Compress or Measure.

    Args:
        kind: The class of the messages.
        options: The first message's content.
        source: Path or bytes of a safetensors file, or tensors by name.
        metadata: With tensors only: metadata of the file that they stand for.
        advance: Is called with the number of bytes of each piece that is sent.

    Returns:
        The stream. Memory is bounded by a chunk, and by one tensor if its layout or its device
        needs a copy.

    Raises:
        InvalidArgumentError: A tensor cannot be compressed, there is none, or there is metadata
            with a file.
        OSError: The file cannot be opened.
        TypeError: The source is none of these.
    """
    first = kind(options=options)
    if isinstance(source, Mapping):
        if not source:
            raise InvalidArgumentError(
                "the mapping is empty: there are no tensors to compress", reason="NO_TENSORS"
            )
        return RequestStream(_tensor_messages(kind, first, source, metadata or {}, advance))
    if metadata is not None:
        raise InvalidArgumentError("metadata goes with tensors; a file has its own")
    file = open_source(source)

    def messages() -> Generator[InputMessage, None, None]:
        yield first
        for chunk in _chunks(file, advance):
            yield kind(safetensors=chunk)

    return RequestStream(messages(), file)


def decompress_requests(
    options: service_pb2.DecompressOptions, source: PathOrStr | bytes, advance: ProgressCallback
) -> RequestStream[service_pb2.DecompressRequest]:
    """Returns the requests of Decompress.

    Args:
        options: The first message's content.
        source: Path or bytes of an artefact.
        advance: Is called with the number of bytes of each piece that is sent.

    Returns:
        The stream.

    Raises:
        OSError: The file cannot be opened.
        TypeError: The source is none of these.
    """
    file = open_source(source)

    def messages() -> Generator[service_pb2.DecompressRequest, None, None]:
        yield service_pb2.DecompressRequest(options=options)
        for chunk in _chunks(file, advance):
            yield service_pb2.DecompressRequest(artefact=chunk)

    return RequestStream(messages(), file)


def open_source(source: PathOrStr | bytes) -> BinaryIO:
    """Opens a path, or bytes as if they were a file.

    Raises:
        OSError: The file cannot be opened.
        TypeError: The source is neither.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return io.BytesIO(source)
    if isinstance(source, str | os.PathLike):
        return open_input(source)
    kind = type(source).__name__
    raise TypeError(f"a path, bytes or a mapping of tensors is needed, not {kind}{_hint(source)}")


def _hint(source: object) -> str:
    """Returns advice for something that is often passed where a cache is wanted."""
    if hasattr(source, "key_cache") or hasattr(source, "layers"):
        return (
            ": kvcompress.integrations.transformers has save_cache(client, path, cache), and "
            "cache_tensors(cache) gives the mapping"
        )
    if is_tensor(source) or isinstance(source, np.ndarray):
        return ': a name says what it is, such as {"layer_0_key": tensor}'
    if isinstance(source, list | tuple):
        return (
            ': names say what the tensors are, such as {"layer_0_key": keys, "layer_0_value": '
            "values}"
        )
    return ""


def source_size(source: Source) -> int | None:
    """Returns how many bytes of a source will be sent; None where that is not known."""
    if isinstance(source, Mapping):
        return sum(
            value.nbytes if is_tensor(value) else np.asarray(value).nbytes
            for value in source.values()
        )
    if isinstance(source, bytes | bytearray | memoryview):
        return len(source)
    path = Path(source)
    return path.stat().st_size if path.is_file() else None


def _chunks(file: BinaryIO, advance: ProgressCallback) -> Iterator[bytes]:
    """Yields a file in pieces."""
    while chunk := file.read(CHUNK_BYTES):
        yield chunk
        advance(len(chunk))


def _tensor_messages(
    kind: type[InputMessage],
    first: InputMessage,
    tensors: "Mapping[str, Array | torch.Tensor]",
    metadata: Mapping[str, str],
    advance: ProgressCallback,
) -> Generator[InputMessage, None, None]:
    """Returns `first`, the table, then the tensors' bytes; checks before it returns."""
    table = tensor_pb2.TensorTable(metadata=dict(metadata))
    for name, value in tensors.items():
        dtype = dtype_name(value) if is_tensor(value) else np.asarray(value).dtype.name
        known = data_type(dtype)
        if known is None:
            raise InvalidArgumentError(
                f"tensor {name!r} is {dtype}, which cannot be compressed",
                reason="UNSUPPORTED_DTYPE",
                tensor=name,
            )
        shape = value.shape if is_tensor(value) else np.shape(value)
        table.tensors.add(name=name, dtype=known, shape=shape)

    small = any(table_bytes(tensor) < CHUNK_BYTES for tensor in table.tensors)

    def messages() -> Generator[InputMessage, None, None]:
        yield first
        if small and "__metadata__" not in tensors:
            # A chunk of a file, unlike one of a tensor, may hold several tensors.
            header = file_header(table)
            for start in range(0, len(header), CHUNK_BYTES):
                yield kind(safetensors=header[start : start + CHUNK_BYTES])
            for chunk in _gathered(tensors):
                yield kind(safetensors=chunk)
                advance(len(chunk))
            return
        yield kind(tensors=table)
        for name, data in _data_of(tensors):
            for start in range(0, len(data), CHUNK_BYTES):
                chunk = bytes(data[start : start + CHUNK_BYTES])
                yield kind(tensor_data=tensor_pb2.TensorChunk(name=name, data=chunk))
                advance(len(chunk))

    return messages()


def _data_of(
    tensors: "Mapping[str, Array | torch.Tensor]",
) -> Iterator[tuple[str, memoryview]]:
    """Yields the elements of each tensor."""
    for name, value in tensors.items():
        array = tensor_bits(value) if is_tensor(value) else np.asarray(value)
        yield name, little_endian_bytes(array)


def _gathered(tensors: "Mapping[str, Array | torch.Tensor]") -> Iterator[bytes]:
    """Yields the elements of all tensors in pieces, each of which may hold several small ones.

    A message takes a server as long as what is in one of 200 KB.
    """
    held: list[memoryview] = []
    room = CHUNK_BYTES
    for _, data in _data_of(tensors):
        while len(data) >= room:
            yield b"".join([*held, data[:room]])
            data, held, room = data[room:], [], CHUNK_BYTES
        if len(data):
            held.append(data)
            room -= len(data)
    if held:
        yield b"".join(held)
