# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The blocking client."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from kvcompress.answers import CompressAnswer, DecompressAnswer
from kvcompress.arrays import Array, load_arrays
from kvcompress.errors import from_rpc_error
from kvcompress.info import SelfTestReport, ServerInfo
from kvcompress.reports import (
    CompressionReport,
    CompressionResult,
    DecompressionResult,
    Thresholds,
)
from kvcompress.sinks import open_sink
from kvcompress.sources import Feed, PathOrStr, compress_feed, decompress_feed
from kvcompress.v1 import compression_service_pb2 as service_pb2
from kvcompress.v1 import server_info_pb2
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

Request = TypeVar("Request")
Response = TypeVar("Response")

# A trailer lists every tensor, so that its size has no useful bound.
_DEFAULT_OPTIONS = (("grpc.max_receive_message_length", -1),)


class Client:
    """Calls a KV Compress server.

    Thread safe. Every method raises KVCompressError, in the subclass of its code, when the
    call fails, and OSError when a file cannot be read or written; either way no output file
    is left behind, and one that was there stays as it was.
    """

    def __init__(
        self,
        target: str,
        *,
        options: Sequence[tuple[str, Any]] = (),
        timeout: float | None = None,
    ) -> None:
        """Prepares a channel; nothing is sent.

        Args:
            target: Address as gRPC writes it: `host:port`, `unix:/path`, `dns:///name:port`.
            options: Channel options of gRPC, which win over the client's own.
            timeout: Seconds that a call may take where it does not say; None for no limit.
        """
        self._timeout = timeout
        self._channel = grpc.insecure_channel(target, [*_DEFAULT_OPTIONS, *options])
        self._stub = CompressionServiceStub(self._channel)

    def __enter__(self) -> Self:
        """Gives the client itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the client."""
        self.close()

    def close(self) -> None:
        """Closes the channel; calls in progress are cancelled."""
        self._channel.close()

    def compress(
        self,
        source: PathOrStr | bytes | Mapping[str, Array],
        output: PathOrStr | None = None,
        *,
        codec: str = "int4",
        group_size: int | None = None,
        preset: str = "",
        thresholds: Thresholds | None = None,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        reconstruct: bool | PathOrStr = False,
        report_tensors: bool = True,
        timeout: float | None = None,
    ) -> CompressionResult:
        """Compresses a cache.

        Memory is bounded by a few chunks from path to path.

        Args:
            source: Path or bytes of a safetensors file, or arrays by name: float32, float16,
                or bfloat16 of ml_dtypes, of any shape. Four-dimensional ones are
                [batch, heads, tokens, head_dim]; names of the form `layer_{i}_key` and
                `layer_{i}_value` tell a tensor's part in attention.
            output: Path for the artefact; None gives it back as bytes.
            codec: Name of the codec.
            group_size: Elements that share a scale, for codecs with groups: 32, 64 or 128;
                None for the server's default.
            preset: Preset of the codec, for codecs that have presets.
            thresholds: Bounds for the verdict; None for the server's defaults.
            labels: Labels to bind to the artefact, at most 32.
            metadata: With arrays: metadata for the restored file.
            reconstruct: Whether to give back the file that decompression would give too, or a
                path to write it to.
            report_tensors: Whether the report lists every tensor.
            timeout: Seconds; None for the client's own.

        Returns:
            The report, and the artefact unless it went to `output`.

        Raises:
            KVCompressError: The call failed.
            OSError: A file cannot be read or written.
            TypeError: `source` is none of these.
            ValueError: An output path is there and not a regular file.
        """
        options = _compress_options(codec, group_size, preset, thresholds, labels, report_tensors)
        options.reconstruct = reconstruct is not False
        with ExitStack() as stack:
            feed = compress_feed(service_pb2.CompressRequest, options, source, metadata)
            stack.enter_context(closing(feed))
            artefact = stack.enter_context(open_sink(output))
            restored = None
            if reconstruct is not False:
                path = None if reconstruct is True else reconstruct
                restored = stack.enter_context(open_sink(path))
            answer = CompressAnswer(artefact, restored)
            for response in self._stream(self._stub.Compress, feed, timeout):
                answer.take(response)
            report = answer.finish()
            artefact.commit()
            if restored is not None:
                restored.commit()
        return CompressionResult(
            report=report,
            artefact=artefact.data,
            path=None if output is None else Path(output),
            reconstructed=None if restored is None else restored.data,
        )

    def decompress(
        self,
        source: PathOrStr | bytes,
        output: PathOrStr | None = None,
        *,
        tensors: Sequence[str] = (),
        tokens: tuple[int, int] | None = None,
        expected_labels: Mapping[str, str] | None = None,
        expected_payload_digest: str = "",
        verify_only: bool = False,
        timeout: float | None = None,
    ) -> DecompressionResult:
        """Restores a cache, after every check.

        Memory is bounded by a few chunks from path to path.

        Args:
            source: Path or bytes of an artefact.
            output: Path for the safetensors file; None gives back arrays.
            tensors: Shell patterns: only tensors that match one are given back. The others
                are verified all the same.
            tokens: Half-open range of tokens to give back, of tensors
                [batch, heads, tokens, head_dim].
            expected_labels: Labels that the artefact must carry with these values.
            expected_payload_digest: The `payload_digest` that the artefact must have.
            verify_only: Whether to check only; nothing is written or given back.
            timeout: Seconds; None for the client's own.

        Returns:
            The report, and the arrays unless the file went to `output`.

        Raises:
            KVCompressError: The call failed; DataLossError for a damaged artefact or one that
                is not the one expected.
            OSError: A file cannot be read or written.
            TypeError: `source` is none of these.
            ValueError: `output` is there and not a regular file, or arrays are asked for and
                a shape is one that NumPy cannot hold.
        """
        options = service_pb2.DecompressOptions(
            expected_labels=expected_labels,
            expected_payload_digest=expected_payload_digest,
            tensors=tensors,
            verify_only=verify_only,
        )
        if tokens is not None:
            options.tokens.begin, options.tokens.end = tokens
        with ExitStack() as stack:
            feed = decompress_feed(options, source)
            stack.enter_context(closing(feed))
            path = None if output is None or verify_only else Path(output)
            sink = stack.enter_context(open_sink(path))
            answer = DecompressAnswer(sink)
            for response in self._stream(self._stub.Decompress, feed, timeout):
                answer.take(response)
            report = answer.finish()
            sink.commit()
        data = None if verify_only else sink.data
        if data is None:
            return DecompressionResult(report, None, None, None, path)
        arrays, metadata = load_arrays(data)
        return DecompressionResult(report, arrays, metadata, data, None)

    def measure(
        self,
        source: PathOrStr | bytes | Mapping[str, Array],
        *,
        codec: str = "int4",
        group_size: int | None = None,
        preset: str = "",
        thresholds: Thresholds | None = None,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        report_tensors: bool = True,
        timeout: float | None = None,
    ) -> CompressionReport:
        """Measures what `compress` would give, and gives back no artefact.

        Args:
            source: As for `compress`, and so are the others.
            codec: Name of the codec.
            group_size: Elements that share a scale.
            preset: Preset of the codec.
            thresholds: Bounds for the verdict.
            labels: Labels that would be bound; they count in the size.
            metadata: With arrays: metadata that would be kept; it counts in the size.
            report_tensors: Whether the report lists every tensor.
            timeout: Seconds; None for the client's own.

        Returns:
            What `compress` would have reported.

        Raises:
            KVCompressError: The call failed.
            OSError: The file cannot be read.
            TypeError: `source` is none of these.
        """
        options = _compress_options(codec, group_size, preset, thresholds, labels, report_tensors)
        feed = compress_feed(service_pb2.MeasureRequest, options, source, metadata)
        with closing(feed), _translated(feed):
            response = self._stub.Measure(feed, timeout=self._seconds(timeout))
        return CompressionReport.from_proto(response.report)

    def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """Asks what the server is and can do.

        Args:
            timeout: Seconds; None for the client's own.

        Returns:
            Versions, kernels, limits and codecs.

        Raises:
            KVCompressError: The call failed.
        """
        with _translated():
            return ServerInfo.from_proto(
                self._stub.GetServerInfo(
                    server_info_pb2.GetServerInfoRequest(), timeout=self._seconds(timeout)
                )
            )

    def self_test(self, codec: str = "", *, timeout: float | None = None) -> SelfTestReport:
        """Has the server run a built-in tensor through the data path of its codecs.

        Args:
            codec: Only this codec; all when empty.
            timeout: Seconds; None for the client's own.

        Returns:
            A result for each codec and parameter value.

        Raises:
            KVCompressError: The call failed. A test that did not pass is no error.
        """
        with _translated():
            return SelfTestReport.from_proto(
                self._stub.SelfTest(
                    service_pb2.SelfTestRequest(codec=codec), timeout=self._seconds(timeout)
                )
            )

    def _seconds(self, timeout: float | None) -> float | None:
        """Gives the timeout of one call."""
        return self._timeout if timeout is None else timeout

    def _stream(
        self,
        method: "grpc.StreamStreamMultiCallable[Request, Response]",
        feed: Feed[Request],
        timeout: float | None,
    ) -> Iterator[Response]:
        """Gives the responses of a call, and cancels it when they are left unread."""
        with _translated(feed):
            call = method(feed, timeout=self._seconds(timeout))
            try:
                yield from call
            finally:
                call.cancel()


@contextmanager
def _translated(feed: Feed[Any] | None = None) -> Iterator[None]:
    """Turns gRPC's errors into this package's, or into what broke the request stream."""
    try:
        yield
    except grpc.RpcError as error:
        if feed is not None and feed.error is not None:
            raise feed.error from None
        raise from_rpc_error(error) from error


def _compress_options(
    codec: str,
    group_size: int | None,
    preset: str,
    thresholds: Thresholds | None,
    labels: Mapping[str, str] | None,
    report_tensors: bool,
) -> service_pb2.CompressOptions:
    """Gives the options of Compress and Measure."""
    return service_pb2.CompressOptions(
        codec=codec,
        group_size=group_size,
        preset=preset,
        thresholds=None if thresholds is None else thresholds.to_proto(),
        report_tensors=report_tensors,
        labels=labels,
    )
