# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The base of the blocking client and of the one for asyncio: all that does not wait."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar, Unpack

import grpc

from kvcompress._calls import Call, open_compress_call, open_decompress_call
from kvcompress._gate import gate_of
from kvcompress._progress import Progress
from kvcompress._reports import CompressionResult, DecompressionResult
from kvcompress._requests import PathOrStr, Source
from kvcompress._shared_files import OnStart, SharedFiles
from kvcompress._sinks import OnTensor
from kvcompress.connection import ConnectionArguments, connect
from kvcompress.options import (
    CompressArguments,
    DecompressArguments,
    compress_options,
    decompress_options,
)
from kvcompress.v1 import compression_service_pb2 as service_pb2
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

Request = TypeVar("Request")
Response = TypeVar("Response")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class CallPlan(Generic[Request, Response, Result]):
    """How to make a call: by the names of files in a shared directory, else by a stream.

    Attributes:
        source: What is read.
        call_shared: Makes the call that names files; gives None where the bytes have to be sent.
        method: The method of the stub that streams.
        open_call: Opens the files for an attempt to stream.
        timeout: Seconds that an attempt may take; None for no limit.
    """

    source: object
    call_shared: Callable[[OnStart], Result | None]
    method: "grpc.StreamStreamMultiCallable[Request, Response]"
    open_call: Callable[[], AbstractContextManager[Call[Request, Response, Result]]]
    timeout: float | None


CompressPlan = CallPlan[
    service_pb2.CompressRequest, service_pb2.CompressResponse, CompressionResult
]
DecompressPlan = CallPlan[
    service_pb2.DecompressRequest, service_pb2.DecompressResponse, DecompressionResult
]


class BaseClient:
    """A channel to a server, and the plans of its calls."""

    def __init__(
        self,
        target: str | None = None,
        *,
        timeout: float | None = None,
        **connection: Unpack[ConnectionArguments],
    ) -> None:
        """Prepares a channel; nothing is sent.

        Args:
            target: Address as gRPC writes it: `host:port`, `unix:/path`, `dns:///name:port`.
                None starts a `kv-compressd` of this client's own, with the flags that the
                environment has. It takes tens of milliseconds, only this user can reach it,
                and it ends with `close` or with this process.
            timeout: Seconds that a call may take where it does not say; None for no limit.
            connection: See `kvcompress.connection.ConnectionArguments`.

        Raises:
            OSError: A certificate cannot be read, or no server can be started:
                FileNotFoundError when there is no kv-compressd.
            ValueError: The arguments do not go together.
        """
        self._timeout = timeout
        self._connection = connect(target, **connection)
        self._channel = self._connection.open_channel()
        self._stub = CompressionServiceStub(self._channel)
        self._shared = SharedFiles(
            self._stub, self._connection.target, self._connection.shared_directory
        )

    def _seconds(self, timeout: float | None) -> float | None:
        """Gives the timeout of one call."""
        return self._timeout if timeout is None else timeout

    def _compression(
        self,
        source: Source,
        output: PathOrStr | None,
        metadata: Mapping[str, str] | None,
        reconstruct: bool | PathOrStr,
        require: bool,
        progress: Progress,
        timeout: float | None,
        options: CompressArguments,
    ) -> CompressPlan:
        """Plans a call of `compress`, with its arguments."""
        wanted = compress_options(**options)
        gate = gate_of(wanted) if require else None
        seconds = self._seconds(timeout)

        def call_shared(on_start: OnStart) -> CompressionResult | None:
            # What the server writes is there before anybody can hold it to bounds.
            if metadata is not None or reconstruct is not False or gate is not None:
                return None
            return self._shared.compress(
                source, output, wanted, progress=progress, timeout=seconds, on_start=on_start
            )

        open_call = partial(
            open_compress_call,
            source,
            output,
            wanted,
            metadata=metadata,
            reconstruct=reconstruct,
            gate=gate,
            progress=progress,
        )
        return CallPlan(source, call_shared, self._stub.Compress, open_call, seconds)

    def _decompression(
        self,
        source: PathOrStr | bytes,
        output: PathOrStr | None,
        reuse: bool,
        on_tensor: OnTensor | None,
        progress: Progress,
        timeout: float | None,
        options: DecompressArguments,
    ) -> DecompressPlan:
        """Plans a call of `decompress`, with its arguments."""
        if on_tensor is not None and output is not None:
            raise ValueError("on_tensor is told of arrays, and output takes the file instead")
        wanted = decompress_options(**options)
        seconds = self._seconds(timeout)

        def call_shared(on_start: OnStart) -> DecompressionResult | None:
            return self._shared.decompress(
                source,
                output,
                wanted,
                progress=progress,
                timeout=seconds,
                reuse=reuse,
                on_start=on_start,
            )

        open_call = partial(
            open_decompress_call, source, output, wanted, progress=progress, on_tensor=on_tensor
        )
        return CallPlan(source, call_shared, self._stub.Decompress, open_call, seconds)
