# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The client for asyncio.

async with kvcompress.aio.Client("127.0.0.1:50051") as client:
    result = await client.compress("cache.safetensors", "small.safetensors")
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import ParamSpec, Self, TypeVar, Unpack

import grpc.aio

from kvcompress.calls import (
    Call,
    CompressCall,
    DecompressCall,
    measure_feed,
    translated,
)
from kvcompress.connection import ConnectionArguments, connect
from kvcompress.info import SelfTestReport, ServerInfo
from kvcompress.options import (
    CompressArguments,
    DecompressArguments,
    compress_options,
    decompress_options,
)
from kvcompress.progress import Progress
from kvcompress.reports import CompressionReport, CompressionResult, DecompressionResult
from kvcompress.sources import Feed, PathOrStr, Source
from kvcompress.v1 import compression_service_pb2 as service_pb2
from kvcompress.v1 import server_info_pb2
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

__all__ = ["Client"]

Request = TypeVar("Request")
Response = TypeVar("Response")
Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


class Client:
    """Calls a KV Compress server from one event loop.

    As kvcompress.Client in arguments, results and errors; many calls may be under way at
    once. Files are read and written, and tensors copied, in threads. A call that is cancelled
    leaves no output file behind.
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        timeout: float | None = None,
        **connection: Unpack[ConnectionArguments],
    ) -> None:
        """Prepares a channel, within a running event loop; nothing is sent.

        Args:
            target: As for kvcompress.Client. None starts a server, and blocks for the tens of
                milliseconds that it takes.
            timeout: Seconds that a call may take where it does not say; None for no limit.
            connection: See `kvcompress.connection.ConnectionArguments`.

        Raises:
            OSError: A certificate cannot be read, or no server can be started:
                FileNotFoundError when there is no kv-compressd.
            ValueError: The arguments do not go together.
        """
        self._timeout = timeout
        self._connection = connect(target, **connection)
        address, options = self._connection.target, self._connection.options
        if self._connection.credentials is None:
            self._channel = grpc.aio.insecure_channel(address, options)
        else:
            credentials = self._connection.credentials
            self._channel = grpc.aio.secure_channel(address, credentials, options)
        self._stub = CompressionServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        """Gives the client itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the client."""
        await self.close()

    async def close(self) -> None:
        """Closes the channel, and the client's own server; calls in progress are cancelled."""
        await self._channel.close()
        await _in_thread(self._connection.close)

    async def compress(
        self,
        source: Source,
        output: PathOrStr | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        reconstruct: bool | PathOrStr = False,
        progress: Progress = False,
        timeout: float | None = None,
        **options: Unpack[CompressArguments],
    ) -> CompressionResult:
        """Compresses a cache; see kvcompress.Client.compress."""
        call = CompressCall(
            source,
            output,
            compress_options(**options),
            metadata=metadata,
            reconstruct=reconstruct,
            progress=progress,
        )
        return await self._run(self._stub.Compress, call, timeout)

    async def decompress(
        self,
        source: PathOrStr | bytes,
        output: PathOrStr | None = None,
        *,
        progress: Progress = False,
        timeout: float | None = None,
        **options: Unpack[DecompressArguments],
    ) -> DecompressionResult:
        """Restores a cache, after every check; see kvcompress.Client.decompress."""
        call = DecompressCall(source, output, decompress_options(**options), progress=progress)
        return await self._run(self._stub.Decompress, call, timeout)

    async def measure(
        self,
        source: Source,
        *,
        metadata: Mapping[str, str] | None = None,
        progress: Progress = False,
        timeout: float | None = None,
        **options: Unpack[CompressArguments],
    ) -> CompressionReport:
        """Measures what `compress` would give; see kvcompress.Client.measure."""
        wanted = compress_options(**options)
        with (
            measure_feed(source, wanted, metadata=metadata, progress=progress) as feed,
            translated(feed),
        ):
            seconds = self._seconds(timeout)
            response = await self._stub.Measure(_requests(feed), timeout=seconds)
        return CompressionReport.from_proto(response.report)

    async def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """Asks what the server is and can do; see kvcompress.Client.server_info."""
        request = server_info_pb2.GetServerInfoRequest()
        with translated():
            response = await self._stub.GetServerInfo(request, timeout=self._seconds(timeout))
        return ServerInfo.from_proto(response)

    async def self_test(self, codec: str = "", *, timeout: float | None = None) -> SelfTestReport:
        """Has the server test its codecs; see kvcompress.Client.self_test."""
        request = service_pb2.SelfTestRequest(codec=codec)
        with translated():
            response = await self._stub.SelfTest(request, timeout=self._seconds(timeout))
        return SelfTestReport.from_proto(response)

    def _seconds(self, timeout: float | None) -> float | None:
        """Gives the timeout of one call."""
        return self._timeout if timeout is None else timeout

    async def _run(
        self,
        method: "grpc.aio.StreamStreamMultiCallable[Request, Response]",
        call: Call[Request, Response, Result],
        timeout: float | None,
    ) -> Result:
        """Makes a call, and cancels it when its responses are not taken to the end."""
        with call, translated(call.feed):
            responses = method(_requests(call.feed), timeout=self._seconds(timeout))
            try:
                async for response in responses:
                    await _in_thread(call.take, response)
            finally:
                responses.cancel()
            return await _in_thread(call.finish)


async def _requests(feed: Feed[Request]) -> AsyncIterator[Request]:
    """Gives the requests of a feed without blocking the event loop."""
    while (request := await _in_thread(next, feed, None)) is not None:
        yield request


async def _in_thread(
    function: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """Runs a function in a thread; when cancelled, only leaves after the function has."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
