# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The streaming calls without their transport, which is all that the two clients differ in."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc

from kvcompress._arrays import load_arrays
from kvcompress._gate import Gate
from kvcompress._progress import Progress, open_progress
from kvcompress._reports import (
    CompressionResult,
    DecompressionResult,
    InMemoryCompressionResult,
    InMemoryDecompressionResult,
)
from kvcompress._requests import (
    PathOrStr,
    RequestStream,
    Source,
    compress_requests,
    decompress_requests,
)
from kvcompress._responses import CompressResponses, DecompressResponses
from kvcompress._sinks import OnTensor, Sink, open_sink
from kvcompress.errors import from_rpc_error
from kvcompress.v1 import compression_service_pb2 as service_pb2

Request = TypeVar("Request")
Response = TypeVar("Response")
Result = TypeVar("Result")


class Call(ABC, Generic[Request, Response, Result]):
    """One attempt at a call: what to send, and what becomes of the responses.

    Attributes:
        requests: The requests.
        responded: Whether a response has come.
    """

    def __init__(self, requests: RequestStream[Request]) -> None:
        """Takes the requests."""
        self.requests = requests
        self.responded = False

    @abstractmethod
    def take(self, response: Response) -> None:
        """Takes the next response.

        Raises:
            DataLossError: It has no place in the stream.
            OSError: It cannot be written.
        """

    @abstractmethod
    def finish(self) -> Result:
        """Ends the stream: publishes the outputs and returns the result.

        Raises:
            DataLossError: The stream is not complete.
            OSError: An output cannot be written.
        """


class CompressCall(
    Call[service_pb2.CompressRequest, service_pb2.CompressResponse, CompressionResult]
):
    """A call of Compress."""

    def __init__(
        self,
        requests: RequestStream[service_pb2.CompressRequest],
        artefact: Sink,
        reconstructed: Sink | None,
        path: Path | None,
        gate: Gate | None,
    ) -> None:
        """Takes the requests, the outputs, the path of the artefact, and what the report holds."""
        super().__init__(requests)
        self._gate = gate
        self._artefact, self._reconstructed, self._path = artefact, reconstructed, path
        self._responses = CompressResponses(artefact, reconstructed)

    def take(self, response: service_pb2.CompressResponse) -> None:
        """Takes the next response."""
        self._responses.take(response)

    def finish(self) -> CompressionResult:
        """Publishes the artefact, and the reconstructed file if it was asked for.

        Raises:
            QualityError: Bounds do not hold; nothing is published.
        """
        report = self._responses.finish()
        if self._gate is not None:
            report = self._gate.hold(report)
        self._artefact.commit()
        if self._reconstructed is not None:
            self._reconstructed.commit()
        artefact = self._artefact.data
        reconstructed = None if self._reconstructed is None else self._reconstructed.data
        if artefact is None:
            return CompressionResult(report, None, self._path, reconstructed)
        return InMemoryCompressionResult(report, artefact, None, reconstructed)


class DecompressCall(
    Call[service_pb2.DecompressRequest, service_pb2.DecompressResponse, DecompressionResult]
):
    """A call of Decompress."""

    def __init__(
        self,
        requests: RequestStream[service_pb2.DecompressRequest],
        restored: Sink,
        path: Path | None,
        *,
        verify_only: bool,
    ) -> None:
        """Takes the requests, the output, and what the result says of it."""
        super().__init__(requests)
        self._restored, self._path, self._verify_only = restored, path, verify_only
        self._responses = DecompressResponses(restored)

    def take(self, response: service_pb2.DecompressResponse) -> None:
        """Takes the next response."""
        self._responses.take(response)

    def finish(self) -> DecompressionResult:
        """Publishes the restored file, or opens it."""
        report = self._responses.finish()
        self._restored.commit()
        data = None if self._verify_only else self._restored.data
        if data is None:
            return DecompressionResult(report, None, None, None, self._path)
        arrays, metadata = load_arrays(data)
        return InMemoryDecompressionResult(report, arrays, metadata, data, None)


@contextmanager
def open_compress_call(
    source: Source,
    output: PathOrStr | None,
    options: service_pb2.CompressOptions,
    *,
    overwrite: bool,
    metadata: Mapping[str, str] | None,
    reconstruct: bool | PathOrStr,
    gate: Gate | None,
    progress: Progress,
) -> Iterator[CompressCall]:
    """Opens the input and the outputs of a call of Compress; see Client.compress.

    The block's end closes them; an output that was not finished is not there.
    """
    options.reconstruct = reconstruct is not False
    path = None if output is None else Path(output)
    restored_path = None if isinstance(reconstruct, bool) else reconstruct
    with ExitStack() as stack:
        advance = stack.enter_context(open_progress(progress, source))
        requests = compress_requests(
            service_pb2.CompressRequest, options, source, metadata, advance
        )
        stack.enter_context(closing(requests))
        artefact = stack.enter_context(open_sink(path, source=source, overwrite=overwrite))
        wanted = (
            open_sink(restored_path, source=source, overwrite=overwrite)
            if options.reconstruct
            else nullcontext()
        )
        yield CompressCall(requests, artefact, stack.enter_context(wanted), path, gate)


@contextmanager
def open_decompress_call(
    source: PathOrStr | bytes,
    output: PathOrStr | None,
    options: service_pb2.DecompressOptions,
    *,
    overwrite: bool,
    progress: Progress,
    on_tensor: OnTensor | None,
) -> Iterator[DecompressCall]:
    """Opens the input and the output of a call of Decompress; see Client.decompress.

    The block's end closes them; an output that was not finished is not there.
    """
    path = None if output is None or options.verify_only else Path(output)
    with (
        open_progress(progress, source) as advance,
        closing(decompress_requests(options, source, advance)) as requests,
        open_sink(path, on_tensor, source=source, overwrite=overwrite) as restored,
    ):
        yield DecompressCall(requests, restored, path, verify_only=options.verify_only)


@contextmanager
def measure_requests(
    source: Source,
    options: service_pb2.CompressOptions,
    *,
    metadata: Mapping[str, str] | None,
    progress: Progress,
) -> Iterator[RequestStream[service_pb2.MeasureRequest]]:
    """Opens the input of a call of Measure; see Client.measure."""
    with open_progress(progress, source) as advance:
        kind = service_pb2.MeasureRequest
        with closing(compress_requests(kind, options, source, metadata, advance)) as requests:
            yield requests


@contextmanager
def translate_errors(requests: RequestStream[Any] | None = None) -> Iterator[None]:
    """Turns gRPC's errors into this package's, or into what broke the request stream.

    A stream of grpc.aio whose requests break ends like one that was cancelled.
    """
    try:
        yield
    except (grpc.RpcError, asyncio.CancelledError) as error:
        if requests is not None and requests.error is not None:
            raise requests.error from None
        if isinstance(error, grpc.RpcError):
            raise from_rpc_error(error) from error
        raise
