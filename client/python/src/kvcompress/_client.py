# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The blocking client."""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Unpack, overload

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


class Client(BaseClient, AbstractContextManager["Client"]):
    """Calls a KV Compress server.

    Thread safe. Every method raises KVCompressError, in the subclass of its code, when the
    call fails, and OSError when a file cannot be read or written; either way no output file
    is left behind, and one that was there stays as it was. The same holds where a callback
    raises, whatever it raises, which ends the call and is raised to the caller, and where a
    warning is made an error. A process forked from the client's has no part in it: calls raise
    FailedPreconditionError there, and `close` does nothing.

    Examples:
        >>> import numpy as np
        >>> import kvcompress
        >>> random = np.random.default_rng(0)  # stands for a model
        >>> keys = random.normal(size=(1, 8, 128, 64)).astype(np.float16)
        >>> client = kvcompress.Client()  # with a server of its own
        >>> result = client.compress({"layer_0_key": keys}, codec="int8")
        >>> result
        CompressionResult(int8:64, 1.9...x, keys' SNR 44.4... dB, SNR 44.5... dB, EXCELLENT, ...)
        >>> client.decompress(result.artefact).tensors["layer_0_key"].shape
        (1, 8, 128, 64)

        Of a part, which is read alone:

        >>> client.decompress(result.artefact, tokens=(0, 16)).tensors["layer_0_key"].shape
        (1, 8, 16, 64)

        With a bound that does not hold there is no artefact. `measure` makes none either way:

        >>> client.compress({"layer_0_key": keys}, codec="int4", min_snr_db=30)
        Traceback (most recent call last):
            ...
        kvcompress.errors.QualityError: 1 of 1 tensors miss a bound with int4:64; worst: ...
        >>> client.measure({"layer_0_key": keys}, codec="auto", min_snr_db=30).metrics.snr_db > 30
        True
        >>> client.close()  # or: with kvcompress.Client() as client
    """

    def __exit__(self, *_: object) -> None:
        """Closes the client."""
        self.close()

    def close(self) -> None:
        """Closes the channel, and the client's own server; calls in progress are cancelled.

        That can take up to about 20 seconds where the line to the server has died. Later calls
        raise a FailedPreconditionError, reason `CLOSED`. May be called again.
        """
        if self._connection.is_inherited():
            return
        self._closed = True
        self._channel.close()
        self._connection.close()

    @overload
    def compress(
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
    def compress(
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

    def compress(
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
        """Compresses a cache.

        Memory is bounded by a few chunks from path to path. Where both paths lie in the
        directory that a server on this machine shares, they are named and not sent.

        Args:
            source: Path or bytes of a safetensors file, or tensors by name, of any shape:
                NumPy arrays, of ml_dtypes' bfloat16 and 8-bit types too; torch tensors on any
                device. What is no floating-point number is kept bit for bit. Four-dimensional
                ones are [batch, heads, tokens, head_dim]; names such as `layer_0_key`
                or `key_cache.0` determine a tensor's role in attention ("Roles" in core/FORMAT.md).
            output: Path for the artefact; None returns it as bytes.
            overwrite: Whether outputs that are there are replaced. An input never is.
            metadata: With tensors: metadata for the restored file.
            reconstruct: Whether to return the file that decompression would produce too, or a
                path to write it to.
            require: Whether bounds that are given (`thresholds`, `key_thresholds`,
                `value_thresholds`, or arguments such as `min_snr_db`) have to hold on every
                tensor. Without them nothing is required. With False the report says what is
                missed, and the artefact is there all the same.
            progress: Whether to draw a bar with tqdm, or a function to call with byte counts.
            timeout: Seconds; None for the client's own, infinity for no limit.
            options: Codec, thresholds, labels...: see `kvcompress.options.CompressArguments`.

        Returns:
            The report, and the artefact unless it went to `output`.

        Raises:
            KVCompressError: The call failed; a QualityError when a bound that was given does not
                hold. It carries the report, and no output is written.
            ImportError: A bar is asked for and tqdm is not installed.
            OSError: A file cannot be read or written; an AlreadyExistsError, reason `FILE_EXISTS`,
                when an output is there and `overwrite` is not set.
            TypeError: `source` is none of these, or an option has a name that there is not.
            ValueError: An output path is there and not a regular file, or is one file with an
                input (an InvalidArgumentError, reason `SAME_FILE`), or an option does not fit
                its field.
        """
        plan = self._compression(
            source, output, overwrite, metadata, reconstruct, require, progress, timeout, options
        )
        return self._run(plan)

    @overload
    def decompress(
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
    def decompress(
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

    def decompress(
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
        """Restores a cache, after every check.

        Memory is bounded by a few chunks from path to path.

        Args:
            source: Path or bytes of an artefact.
            output: Path for the safetensors file; None returns arrays.
            overwrite: Whether a file that is at `output` is replaced. The artefact never is.
            reuse: Whether a file that is at `output` is replaced and gives its memory to the new
                one, where the server writes it: faster, for files that are restored into again
                and again. Who has it mapped sees its bytes change, and a call that fails leaves
                no file.
            on_tensor: A function to call with the name and the array of each tensor as soon as it
                has come, while others are decoded; with `order="layers"` the first layer can be
                used first. Not with `output`. Until the call returns they are provisional: a
                call that fails may have passed tensors that are not to be trusted.
            progress: Whether to draw a bar with tqdm, or a function to call with byte counts.
            timeout: Seconds; None for the client's own.
            options: Tensors, tokens, what is expected...: see
                `kvcompress.options.DecompressArguments`.

        Returns:
            The report, and the arrays unless the file went to `output`.

        Raises:
            KVCompressError: The call failed; DataLossError for a damaged artefact or one that
                is not the one expected.
            ImportError: A bar is asked for and tqdm is not installed.
            OSError: A file cannot be read or written; an AlreadyExistsError as for `compress`.
            TypeError: `source` is none of these, or an option has a name that there is not.
            ValueError: `output` is there and not a regular file, or is the artefact, or arrays are
                asked for and a shape is one that NumPy cannot hold.
        """
        return self._run(
            self._decompression(
                source, output, overwrite, reuse, on_tensor, progress, timeout, options
            )
        )

    def measure(
        self,
        source: Source,
        *,
        metadata: Mapping[str, str] | None = None,
        progress: Progress = False,
        timeout: float | None = None,
        **options: Unpack[CompressArguments],
    ) -> CompressionReport:
        """Measures what `compress` would produce; returns no artefact.

        Args:
            source: As for `compress`, and so are the others. Labels and metadata count in the
                size.
            metadata: With tensors: metadata that would be kept.
            progress: Whether to draw a bar with tqdm, or a function to call with byte counts.
            timeout: Seconds; None for the client's own.
            options: See `kvcompress.options.CompressArguments`.

        Returns:
            What `compress` would have reported, whether bounds hold or not: nothing is written
            that they could keep back.

        Raises:
            KVCompressError: The call failed.
            ImportError: A bar is asked for and tqdm is not installed.
            OSError: The file cannot be read.
            TypeError: `source` is none of these, or an option has a name that there is not.
        """
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
                    response = self._stub.Measure(requests, timeout=self._seconds(timeout))
                return report_with_warnings(response.report)
            except UnavailableError as error:
                delay = retries.delay_after(error)
            time.sleep(delay)
            self._check_usable()

    def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """Asks what the server is and can do.

        Args:
            timeout: Seconds; None for the client's own.

        Returns:
            Versions, kernels, limits and codecs.

        Raises:
            KVCompressError: The call failed.
        """
        request = server_info_pb2.GetServerInfoRequest()
        return ServerInfo.from_proto(self._ask(self._stub.GetServerInfo, request, timeout))

    def self_test(self, codec: str = "", *, timeout: float | None = None) -> SelfTestReport:
        """Runs a built-in tensor through the data path of the server's codecs.

        Args:
            codec: Only this codec; all when empty.
            timeout: Seconds; None for the client's own.

        Returns:
            A result for each codec and parameter value.

        Raises:
            KVCompressError: The call failed. A test that did not pass is no error.
        """
        request = service_pb2.SelfTestRequest(codec=codec)
        return SelfTestReport.from_proto(self._ask(self._stub.SelfTest, request, timeout))

    def _ask(
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
                    return method(request, timeout=seconds)
            except UnavailableError as error:
                delay = retries.delay_after(error)
            time.sleep(delay)
            self._check_usable()

    def _run(self, plan: CallPlan[Request, Response, Result]) -> Result:
        """Makes a call, again while the server is unavailable and nothing has come back."""
        result = plan.call_shared(lambda call: None)
        if result is not None:
            return result
        retries = self._connection.retries(plan.source)
        while True:
            with plan.open_call() as call:
                try:
                    return self._attempt(plan, call)
                except UnavailableError as error:
                    if call.responded:
                        raise
                    delay = retries.delay_after(error)
            time.sleep(delay)
            self._check_usable()

    def _attempt(
        self, plan: CallPlan[Request, Response, Result], call: Call[Request, Response, Result]
    ) -> Result:
        """Makes a call once, and cancels it when its responses are not taken to the end."""
        with translate_errors(call.requests):
            responses = plan.method(call.requests, timeout=plan.timeout)
            try:
                for response in responses:
                    call.responded = True
                    call.take(response)
            finally:
                responses.cancel()
            return call.finish()
