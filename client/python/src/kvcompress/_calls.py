# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The streaming calls without their transport, which is all that the two clients differ in."""

import asyncio
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc

from kvcompress._arrays import load_arrays
from kvcompress._closing import Closing
from kvcompress._progress import Progress, progressing
from kvcompress._reports import CompressionResult, DecompressionResult
from kvcompress._requests import Feed, PathOrStr, Source, compress_feed, decompress_feed
from kvcompress._responses import CompressAnswer, DecompressAnswer
from kvcompress._sinks import open_sink
from kvcompress.errors import from_rpc_error
from kvcompress.v1 import compression_service_pb2 as service_pb2

Request = TypeVar("Request")
Response = TypeVar("Response")
Result = TypeVar("Result")


class Call(Closing, Generic[Request, Response, Result]):
    """One call: what to send, and what becomes of the responses.

    Leaving the `with` block releases everything; what was not finished leaves no file.

    Attributes:
        feed: The requests.
        answered: Whether a response has come.
    """

    feed: Feed[Request]
    answered = False

    def __init__(self) -> None:
        """Begins without resources; what `_open` enters is released by `close`."""
        self._stack = ExitStack()
        with ExitStack() as stack:
            self._open(stack)
            self._stack = stack.pop_all()

    @abstractmethod
    def _open(self, stack: ExitStack) -> None:
        """Opens the input and the outputs."""

    @abstractmethod
    def take(self, response: Response) -> None:
        """Takes the next response.

        Raises:
            DataLossError: It has no place in the stream.
            OSError: It cannot be written.
        """

    @abstractmethod
    def finish(self) -> Result:
        """Ends the stream: publishes the outputs and gives the result.

        Raises:
            DataLossError: The stream is not complete.
            OSError: An output cannot be written.
        """

    def close(self) -> None:
        """Releases everything."""
        self._stack.close()


class CompressCall(
    Call[service_pb2.CompressRequest, service_pb2.CompressResponse, CompressionResult]
):
    """A call of Compress."""

    def __init__(
        self,
        source: Source,
        output: PathOrStr | None,
        options: service_pb2.CompressOptions,
        *,
        metadata: Mapping[str, str] | None,
        reconstruct: bool | PathOrStr,
        progress: Progress,
    ) -> None:
        """Opens input and outputs; see Client.compress."""
        options.reconstruct = reconstruct is not False
        self._source, self._options, self._metadata = source, options, metadata
        self._progress = progress
        self._path = None if output is None else Path(output)
        self._restored_path = None if isinstance(reconstruct, bool) else reconstruct
        super().__init__()

    def _open(self, stack: ExitStack) -> None:
        advance = stack.enter_context(progressing(self._progress, self._source))
        kind = service_pb2.CompressRequest
        self.feed = compress_feed(kind, self._options, self._source, self._metadata, advance)
        stack.enter_context(closing(self.feed))
        self._artefact = stack.enter_context(open_sink(self._path))
        self._restored = None
        if self._options.reconstruct:
            self._restored = stack.enter_context(open_sink(self._restored_path))
        self._answer = CompressAnswer(self._artefact, self._restored)

    def take(self, response: service_pb2.CompressResponse) -> None:
        """Takes the next response."""
        self._answer.take(response)

    def finish(self) -> CompressionResult:
        """Publishes the artefact, and the reconstructed file if it was asked for."""
        report = self._answer.finish()
        self._artefact.commit()
        if self._restored is not None:
            self._restored.commit()
        return CompressionResult(
            report=report,
            artefact=self._artefact.data,
            path=self._path,
            reconstructed=None if self._restored is None else self._restored.data,
        )


class DecompressCall(
    Call[service_pb2.DecompressRequest, service_pb2.DecompressResponse, DecompressionResult]
):
    """A call of Decompress."""

    def __init__(
        self,
        source: PathOrStr | bytes,
        output: PathOrStr | None,
        options: service_pb2.DecompressOptions,
        *,
        progress: Progress,
    ) -> None:
        """Opens input and output; see Client.decompress."""
        self._source, self._options, self._progress = source, options, progress
        self._path = None if output is None or options.verify_only else Path(output)
        super().__init__()

    def _open(self, stack: ExitStack) -> None:
        advance = stack.enter_context(progressing(self._progress, self._source))
        self.feed = decompress_feed(self._options, self._source, advance)
        stack.enter_context(closing(self.feed))
        self._sink = stack.enter_context(open_sink(self._path))
        self._answer = DecompressAnswer(self._sink)

    def take(self, response: service_pb2.DecompressResponse) -> None:
        """Takes the next response."""
        self._answer.take(response)

    def finish(self) -> DecompressionResult:
        """Publishes the restored file, or opens it."""
        report = self._answer.finish()
        self._sink.commit()
        data = None if self._options.verify_only else self._sink.data
        if data is None:
            return DecompressionResult(report, None, None, None, self._path)
        arrays, metadata = load_arrays(data)
        return DecompressionResult(report, arrays, metadata, data, None)


@contextmanager
def measure_feed(
    source: Source,
    options: service_pb2.CompressOptions,
    *,
    metadata: Mapping[str, str] | None,
    progress: Progress,
) -> Iterator[Feed[service_pb2.MeasureRequest]]:
    """Gives the requests of Measure; see Client.measure."""
    with progressing(progress, source) as advance:
        kind = service_pb2.MeasureRequest
        with closing(compress_feed(kind, options, source, metadata, advance)) as feed:
            yield feed


@contextmanager
def translated(feed: Feed[Any] | None = None) -> Iterator[None]:
    """Turns gRPC's errors into this package's, or into what broke the request stream.

    A stream of grpc.aio whose requests break ends like one that was cancelled.
    """
    try:
        yield
    except (grpc.RpcError, asyncio.CancelledError) as error:
        if feed is not None and feed.error is not None:
            raise feed.error from None
        if isinstance(error, grpc.RpcError):
            raise from_rpc_error(error) from error
        raise
