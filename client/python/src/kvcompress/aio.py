# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The client for asyncio.

async with kvcompress.aio.Client("127.0.0.1:50051") as client:
    result = await client.compress("cache.safetensors", "small.safetensors")
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from functools import cached_property
from itertools import islice
from typing import TypeVarTuple, Unpack, overload

import grpc

from kvcompress._base import BaseClient, CallPlan, Request, Response, Result
from kvcompress._calls import Call, measure_requests, translate_errors
from kvcompress._file_type import check_file_type
from kvcompress._info import SelfTestReport, ServerInfo
from kvcompress._progress import Progress
from kvcompress._reports import (
    CompressionReport,
    CompressionResult,
    DecompressionResult,
    InMemoryCompressionResult,
    InMemoryDecompressionResult,
)
from kvcompress._requests import PathOrStr, Source
from kvcompress._sinks import OnTensor
from kvcompress._warnings import report_with_warnings
from kvcompress.errors import UnavailableError
from kvcompress.options import (
    CompressArguments,
    DecompressArguments,
    RestoreArguments,
    compress_options,
)
from kvcompress.v1 import compression_service_pb2 as service_pb2
from kvcompress.v1 import server_info_pb2

__all__ = ["Client"]

Arguments = TypeVarTuple("Arguments")
Stop = Callable[[], object]

# Each call under way waits in one.
_MOST_THREADS = 256


class Client(BaseClient, AbstractAsyncContextManager["Client"]):
    """Calls a KV Compress server from one event loop.

    As kvcompress.Client in arguments, results and errors; many calls may be under way at
    once. Calls are made, files read and written, and tensors copied, in threads: grpc.aio
    replaces the status of a server that refuses a stream early by an error of its own when a
    request is on its way. A call that is cancelled leaves no output file behind.
    """

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        """Where calls are made and files read and written."""
        return ThreadPoolExecutor(_MOST_THREADS, "kvcompress")

    async def __aexit__(self, *_: object) -> None:
        """Closes the client."""
        await self.close()

    async def close(self) -> None:
        """Closes the channel, and the client's own server; calls in progress are cancelled.

        That can take up to about 20 seconds where the line to the server has died. Later calls
        raise a FailedPreconditionError, reason `CLOSED`. May be called again.
        """
        if self._closed or self._connection.is_inherited():
            return
        self._closed = True
        await self._in_thread(self._channel.close)
        await self._in_thread(self._connection.close)
        self._threads.shutdown(wait=False)

    @overload
    async def compress(
        self,
        source: Source,
        output: None = None,
        *,
        overwrite: bool = ...,
        metadata: Mapping[str, str] | None = ...,
        reconstruct: bool | PathOrStr = ...,
        require: bool = ...,
        progress: Progress = ...,
        timeout: float | None = ...,
        **options: Unpack[CompressArguments],
    ) -> InMemoryCompressionResult: ...

    @overload
    async def compress(
        self,
        source: Source,
        output: PathOrStr | None = ...,
        *,
        overwrite: bool = ...,
        metadata: Mapping[str, str] | None = ...,
        reconstruct: bool | PathOrStr = ...,
        require: bool = ...,
        progress: Progress = ...,
        timeout: float | None = ...,
        **options: Unpack[CompressArguments],
    ) -> CompressionResult: ...

    async def compress(
        self,
        source: Source,
        output: PathOrStr | None = None,
        *,
        overwrite: bool = False,
        metadata: Mapping[str, str] | None = None,
        reconstruct: bool | PathOrStr = False,
        require: bool = True,
        progress: Progress = False,
        timeout: float | None = None,
        **options: Unpack[CompressArguments],
    ) -> CompressionResult:
        """Compresses a cache; see kvcompress.Client.compress."""
        plan = self._compression(
            source, output, overwrite, metadata, reconstruct, require, progress, timeout, options
        )
        return await self._run(plan)

    @overload
    async def decompress(
        self,
        source: PathOrStr | bytes,
        output: None = None,
        *,
        overwrite: bool = ...,
        reuse: bool = ...,
        on_tensor: OnTensor | None = ...,
        progress: Progress = ...,
        timeout: float | None = ...,
        **options: Unpack[RestoreArguments],
    ) -> InMemoryDecompressionResult: ...

    @overload
    async def decompress(
        self,
        source: PathOrStr | bytes,
        output: PathOrStr | None = ...,
        *,
        overwrite: bool = ...,
        reuse: bool = ...,
        on_tensor: OnTensor | None = ...,
        progress: Progress = ...,
        timeout: float | None = ...,
        **options: Unpack[DecompressArguments],
    ) -> DecompressionResult: ...

    async def decompress(
        self,
        source: PathOrStr | bytes,
        output: PathOrStr | None = None,
        *,
        overwrite: bool = False,
        reuse: bool = False,
        on_tensor: OnTensor | None = None,
        progress: Progress = False,
        timeout: float | None = None,
        **options: Unpack[DecompressArguments],
    ) -> DecompressionResult:
        """Restores a cache, after every check; see kvcompress.Client.decompress.

        `on_tensor` is called in a thread of the client.
        """
        return await self._run(
            self._decompression(
                source, output, overwrite, reuse, on_tensor, progress, timeout, options
            )
        )

    async def measure(
        self,
        source: Source,
        *,
        metadata: Mapping[str, str] | None = None,
        progress: Progress = False,
        timeout: float | None = None,
        **options: Unpack[CompressArguments],
    ) -> CompressionReport:
        """Measures what `compress` would produce; see kvcompress.Client.measure."""
        check_file_type(source)
        wanted = compress_options(**options)
        retries = self._connection.retries(source)
        while True:
            try:
                with (
                    measure_requests(
                        source, wanted, metadata=metadata, progress=progress
                    ) as requests,
                    translate_errors(requests),
                ):
                    future = self._stub.Measure.future(requests, timeout=self._seconds(timeout))
                    response = await self._in_thread(future.result, stop=future.cancel)
                return report_with_warnings(response.report)
            except UnavailableError as error:
                delay = await self._in_thread(retries.delay_after, error)
            await asyncio.sleep(delay)
            self._check_usable()

    async def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """Asks what the server is and can do; see kvcompress.Client.server_info."""
        request = server_info_pb2.GetServerInfoRequest()
        return ServerInfo.from_proto(await self._ask(self._stub.GetServerInfo, request, timeout))

    async def self_test(self, codec: str = "", *, timeout: float | None = None) -> SelfTestReport:
        """Tests the server's codecs; see kvcompress.Client.self_test."""
        request = service_pb2.SelfTestRequest(codec=codec)
        return SelfTestReport.from_proto(await self._ask(self._stub.SelfTest, request, timeout))

    async def _ask(
        self,
        method: "grpc.UnaryUnaryMultiCallable[Request, Response]",
        request: Request,
        timeout: float | None,
    ) -> Response:
        """Makes a call of one request, again while the server is unavailable."""
        retries, seconds = self._connection.retries(), self._seconds(timeout)
        while True:
            try:
                with translate_errors():
                    future = method.future(request, timeout=seconds)
                    return await self._in_thread(future.result, stop=future.cancel)
            except UnavailableError as error:
                delay = await self._in_thread(retries.delay_after, error)
            await asyncio.sleep(delay)
            self._check_usable()

    async def _run(self, plan: CallPlan[Request, Response, Result]) -> Result:
        """Makes a call, again while the server is unavailable and nothing has come back."""
        calls: list[grpc.Call] = []
        result = await self._in_thread(
            plan.call_shared, calls.append, stop=lambda: [call.cancel() for call in calls]
        )
        if result is not None:
            return result
        retries = self._connection.retries(plan.source)
        while True:
            with plan.open_call() as call:
                try:
                    return await self._attempt(plan, call)
                except UnavailableError as error:
                    if call.responded:
                        raise
                    delay = await self._in_thread(retries.delay_after, error)
            await asyncio.sleep(delay)
            self._check_usable()

    async def _attempt(
        self, plan: CallPlan[Request, Response, Result], call: Call[Request, Response, Result]
    ) -> Result:
        """Makes a call once, and cancels it when its responses are not taken to the end."""
        with translate_errors(call.requests):
            responses = plan.method(call.requests, timeout=plan.timeout)
            try:
                while response := await self._in_thread(
                    lambda: list(islice(responses, 1)), stop=responses.cancel
                ):
                    call.responded = True
                    await self._in_thread(call.take, response[0])
            finally:
                responses.cancel()
            return await self._in_thread(call.finish)

    async def _in_thread(
        self, function: Callable[[*Arguments], Result], *args: *Arguments, stop: Stop | None = None
    ) -> Result:
        """Runs a function in a thread; when cancelled, stops it and leaves after it has."""
        loop = asyncio.get_running_loop()

        def run() -> Result:
            try:
                return function(*args)
            except StopIteration as error:  # with which a future of asyncio never ends
                raise RuntimeError("a callback raised StopIteration") from error

        work = loop.run_in_executor(self._threads, run)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if stop is not None:
                stop()
            await asyncio.wait([work])
            with suppress(Exception):
                work.result()
            raise
