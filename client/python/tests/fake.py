# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A server that returns the answers it was set up with, right or wrong."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Self

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from kvcompress import aio
from kvcompress.v1 import compression_service_pb2 as service_pb2
from kvcompress.v1 import quality_pb2, tensor_pb2

Answer = Callable[[Iterator[Any], grpc.ServicerContext], Iterator[Any]]

_REQUESTS: dict[str, type[Message]] = {
    "Compress": service_pb2.CompressRequest,
    "Decompress": service_pb2.DecompressRequest,
}


class BlockingAio:
    """The client for asyncio behind the methods of the blocking one, for the same tests."""

    def __init__(self, target: str | None = None, **arguments: Any) -> None:  # noqa: ANN401
        """Makes a client in an event loop of its own."""
        self._runner = asyncio.Runner()

        async def client() -> aio.Client:
            return aio.Client(target, **arguments)

        try:
            self._client = self._runner.run(client())
        except BaseException:
            self._runner.close()
            raise

    def __enter__(self) -> Self:
        """Returns the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the client and its event loop."""
        self._runner.run(self._client.close())
        self._runner.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Returns a method that waits for what the client's returns."""
        method = getattr(self._client, name)
        return lambda *arguments, **named: self._runner.run(method(*arguments, **named))


@contextmanager
def fake_server(answer: Answer, credentials: grpc.ServerCredentials | None = None) -> Iterator[str]:
    """Serves Compress and Decompress with one function until the block ends.

    Args:
        answer: Takes the requests and the context, returns the responses.
        credentials: For TLS.

    Yields:
        The address.
    """
    server = grpc.server(ThreadPoolExecutor(4))
    handlers: dict[str, Any] = {
        name: grpc.stream_stream_rpc_method_handler(
            answer,
            request_deserializer=kind.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        for name, kind in _REQUESTS.items()
    }
    service = "kvcompress.v1.CompressionService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    address = "127.0.0.1:0"
    if credentials is None:
        port = server.add_insecure_port(address)
    else:
        port = server.add_secure_port(address, credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def canned(responses: Sequence[Message]) -> Answer:
    """Returns an answer that reads everything and then sends `responses`."""

    def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        for _ in requests:
            pass
        yield from responses

    return answer


def failing(code: grpc.StatusCode, reason: str, places: dict[str, str]) -> Answer:
    """Returns an answer that fails immediately, with details."""

    def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        info = error_details_pb2.ErrorInfo(reason=reason, domain="kvcompress.v1", metadata=places)
        details = [any_pb2.Any(), any_pb2.Any()]
        details[0].Pack(error_details_pb2.BadRequest())
        details[1].Pack(info)
        status = status_pb2.Status(code=code.value[0], message="a message", details=details)
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(code, "a message")
        yield from ()

    return answer


def begin(reserved: int) -> service_pb2.CompressResponse:
    """Makes the first response of Compress."""
    return service_pb2.CompressResponse(
        begin=service_pb2.CompressBegin(reserved_header_bytes=reserved, codec="int4:64")
    )


def artefact(offset: int, data: bytes) -> service_pb2.CompressResponse:
    """Makes a chunk of an artefact."""
    return service_pb2.CompressResponse(artefact=tensor_pb2.FileChunk(offset=offset, data=data))


def reconstructed(offset: int, data: bytes) -> service_pb2.CompressResponse:
    """Makes a chunk of a reconstructed file."""
    chunk = tensor_pb2.FileChunk(offset=offset, data=data)
    return service_pb2.CompressResponse(reconstructed=chunk)


def compressed(
    size: int, original: int = 0, tensors: Sequence[quality_pb2.TensorReport] = ()
) -> service_pb2.CompressResponse:
    """Makes the trailer of Compress."""
    return service_pb2.CompressResponse(
        trailer=quality_pb2.CompressionReport(
            codec="int4:64",
            compressed_size_bytes=size,
            original_size_bytes=original,
            tensor_count=len(tensors),
            tensors=tensors,
        )
    )


def safetensors(offset: int, data: bytes) -> service_pb2.DecompressResponse:
    """Makes a chunk of a restored file."""
    chunk = tensor_pb2.FileChunk(offset=offset, data=data)
    return service_pb2.DecompressResponse(safetensors=chunk)


def restored(size: int) -> service_pb2.DecompressResponse:
    """Makes the trailer of Decompress."""
    return service_pb2.DecompressResponse(
        trailer=service_pb2.DecompressionReport(output_size_bytes=size)
    )
