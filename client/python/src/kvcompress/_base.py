# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The base of the blocking client and of the one for asyncio: all that does not wait."""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Generic, TypeVar, Unpack

import grpc

from kvcompress._calls import Call, open_compress_call, open_decompress_call
from kvcompress._file_type import check_file_type
from kvcompress._gate import gate_of
from kvcompress._output_file import check_output
from kvcompress._progress import Progress
from kvcompress._reports import CompressionResult, DecompressionResult
from kvcompress._requests import PathOrStr, Source
from kvcompress._shared_files import OnStart, SharedFiles
from kvcompress._sinks import OnTensor
from kvcompress.connection import ConnectionArguments, connect
from kvcompress.errors import FailedPreconditionError
from kvcompress.options import (
    CompressArguments,
    DecompressArguments,
    compress_options,
    decompress_options,
)
from kvcompress.v1 import compression_service_pb2 as service_pb2
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

# Seconds, ten years; what is longer is as good as no limit, which gRPC's clocks can hold.
_LONGEST_TIMEOUT = 315_360_000

Request = TypeVar("Request")
Response = TypeVar("Response")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class CallPlan(Generic[Request, Response, Result]):
    """How to make a call: by the names of files in a shared directory, else by a stream.

    Attributes:
        source: What is read.
        call_shared: Makes the shared-directory call; returns None where bytes must be sent.
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
            timeout: Seconds that a call may take where it does not say; None or infinity for no
                limit.
            connection: See `kvcompress.connection.ConnectionArguments`.

        Raises:
            OSError: A certificate cannot be read, or no server can be started:
                FileNotFoundError when there is no kv-compressd.
            ValueError: The arguments do not go together, or the timeout is negative or nan.
        """
        self._timeout = None if timeout is None else _limit(timeout)
        self._connection = connect(target, **connection)
        self._channel = self._connection.open_channel()
        self._raw_stub = CompressionServiceStub(self._channel)
        self._shared = SharedFiles(self._raw_stub, self._connection)
        self._closed = False

    def __repr__(self) -> str:
        """Returns the address and the state in one line; no key and no certificate."""
        own = self._connection.server is not None
        words = ["own server" if own else repr(self._connection.target)]
        if self._connection.credentials is not None:
            words.append("TLS")
        if self._timeout is not None:
            words.append(f"timeout {self._timeout:g} s")
        if self._closed:
            words.append("closed")
        return f"Client({', '.join(words)})"

    @property
    def _stub(self) -> CompressionServiceStub:
        """What makes calls.

        Raises:
            FailedPreconditionError: This is a forked process, reason `FORKED`; or the client was
                closed, reason `CLOSED`.
        """
        self._check_usable()
        return self._raw_stub

    def _check_usable(self) -> None:
        """Refuses to go on in a forked process, and after `close`.

        Raises:
            FailedPreconditionError: As `_stub` says.
        """
        self._connection.check_process()
        if self._closed:
            raise FailedPreconditionError(
                "the client was closed, by `close` or at the end of its `with` block: make calls "
                "before, or make another client",
                reason="CLOSED",
            )

    def _seconds(self, timeout: float | None) -> float | None:
        """Returns the timeout of one call; None for no limit.

        Raises:
            TypeError: It is no number.
            ValueError: It is negative, or not a number.
        """
        return self._timeout if timeout is None else _limit(timeout)

    def _compression(
        self,
        source: Source,
        output: PathOrStr | None,
        overwrite: bool,
        metadata: Mapping[str, str] | None,
        reconstruct: bool | PathOrStr,
        require: bool,
        progress: Progress,
        timeout: float | None,
        options: CompressArguments,
    ) -> CompressPlan:
        """Plans a call of `compress`, with its arguments."""
        inputs = _paths(source, options.get("model_config"))
        second = _paths(reconstruct)
        for each in second:
            check_output(each, *inputs, overwrite=overwrite)
        if output is not None:
            check_output(output, *inputs, *second, overwrite=overwrite)
        check_file_type(source)
        wanted = compress_options(**options)
        gate = gate_of(wanted) if require else None
        seconds = self._seconds(timeout)

        def call_shared(on_start: OnStart) -> CompressionResult | None:
            # What the server writes is there before anybody can hold it to bounds.
            if metadata is not None or reconstruct is not False or gate is not None:
                return None
            return self._shared.compress(
                source,
                output,
                wanted,
                overwrite=overwrite,
                progress=progress,
                timeout=seconds,
                on_start=on_start,
            )

        open_call = partial(
            open_compress_call,
            source,
            output,
            wanted,
            overwrite=overwrite,
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
        overwrite: bool,
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
        if output is not None and not wanted.verify_only:
            check_output(output, *_paths(source), overwrite=overwrite or reuse)
        check_file_type(source)
        seconds = self._seconds(timeout)

        def call_shared(on_start: OnStart) -> DecompressionResult | None:
            return self._shared.decompress(
                source,
                output,
                wanted,
                overwrite=overwrite,
                progress=progress,
                timeout=seconds,
                reuse=reuse,
                on_start=on_start,
            )

        open_call = partial(
            open_decompress_call,
            source,
            output,
            wanted,
            overwrite=overwrite or reuse,
            progress=progress,
            on_tensor=on_tensor,
        )
        return CallPlan(source, call_shared, self._stub.Decompress, open_call, seconds)


def _paths(*values: object) -> list[PathOrStr]:
    """Returns the values that are paths."""
    return [value for value in values if isinstance(value, str | os.PathLike)]


def _limit(timeout: float) -> float | None:
    """Returns the timeout for gRPC, None for no limit."""
    if not isinstance(timeout, Real):
        raise TypeError(f"timeout is a number of seconds, not {type(timeout).__name__}")
    if not timeout >= 0:
        raise ValueError(f"timeout is {timeout}: seconds from 0 are needed, or None for no limit")
    return None if timeout > _LONGEST_TIMEOUT else float(timeout)
