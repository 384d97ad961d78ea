# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Shared-directory transfers: calls that name files instead of sending them."""

import os
import stat
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import grpc

from kvcompress._calls import translate_errors
from kvcompress._progress import Progress, open_progress
from kvcompress._reports import (
    CompressionResult,
    DecompressionReport,
    DecompressionResult,
)
from kvcompress._requests import PathOrStr
from kvcompress._warnings import report_with_warnings
from kvcompress.errors import (
    AbortedError,
    KVCompressError,
    PermissionDeniedError,
    UnavailableError,
    UnimplementedError,
)
from kvcompress.v1 import compression_service_pb2 as service_pb2
from kvcompress.v1 import server_info_pb2
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

Names = tuple[str, str]
"""Input and output, relative to the shared directory; the output empty when there is none."""

OnStart = Callable[[grpc.Call], object]
"""Is called with the gRPC call once it has started, so that another thread can cancel it."""

Reply = TypeVar("Reply", service_pb2.CompressFileResponse, service_pb2.DecompressFileResponse)


class SharedFiles:
    """Makes the calls of one client that name files.

    Thread safe. A method gives None where bytes have to be sent instead: the target is no unix
    socket, the server shares no directory, or another one, a file lies elsewhere, or the
    server may not open it.
    """

    def __init__(
        self, stub: CompressionServiceStub, target: str, directory: PathOrStr | None
    ) -> None:
        """Takes where this process sees the directory; None: where the server sees it."""
        self._stub = stub
        self._local = target.startswith("unix:")
        self._directory = directory
        self._lock = threading.Lock()
        self._asked = False
        self._root: str | None = None

    def directory(self, timeout: float) -> str | None:
        """Gives the shared directory, where it is here too; may ask the server, for seconds."""
        return self._shared_root(timeout) if self._local else None

    def includes(self, folder: PathOrStr, timeout: float) -> bool:
        """Tells whether files of a folder can be named; may ask the server, for seconds."""
        root = self.directory(timeout)
        return root is not None and Path(os.path.realpath(folder)).is_relative_to(root)

    def compress(
        self,
        source: object,
        output: PathOrStr | None,
        options: service_pb2.CompressOptions,
        *,
        progress: Progress,
        timeout: float | None,
        on_start: OnStart = lambda call: None,
    ) -> CompressionResult | None:
        """Compresses a file into another; see Client.compress."""
        if not isinstance(source, str | os.PathLike) or output is None:
            return None
        names = self._names(source, output, timeout)
        if names is None:
            return None
        request = service_pb2.CompressFileRequest(
            options=options, input_path=names[0], output_path=names[1], overwrite=True
        )

        def call() -> Iterable[service_pb2.CompressFileResponse]:
            replies = self._stub.CompressFile(request, timeout=timeout)
            on_start(replies)
            return replies

        reply = _finish(call, source, progress)
        if reply is None:
            return None
        report = report_with_warnings(reply.trailer)
        return CompressionResult(report, None, Path(output), None)

    def decompress(
        self,
        source: object,
        output: PathOrStr | None,
        options: service_pb2.DecompressOptions,
        *,
        progress: Progress,
        timeout: float | None,
        reuse: bool = False,
        on_start: OnStart = lambda call: None,
    ) -> DecompressionResult | None:
        """Restores a file from another; see Client.decompress."""
        if options.verify_only:
            output = None
        elif output is None:
            return None
        if not isinstance(source, str | os.PathLike):
            return None
        names = self._names(source, output, timeout)
        if names is None:
            return None
        request = service_pb2.DecompressFileRequest(
            options=options,
            input_path=names[0],
            output_path=names[1],
            overwrite=output is not None,
            reuse=reuse,
        )

        def call() -> Iterable[service_pb2.DecompressFileResponse]:
            replies = self._stub.DecompressFile(request, timeout=timeout)
            on_start(replies)
            return replies

        reply = _finish(call, source, progress)
        if reply is None:
            return None
        path = None if output is None else Path(output)
        report = DecompressionReport.from_proto(reply.trailer)
        return DecompressionResult(report, None, None, None, path)

    def _names(
        self, source: PathOrStr, output: PathOrStr | None, timeout: float | None
    ) -> Names | None:
        """Gives the names of two files, when both can be named."""
        if not self._local:
            return None
        root = self._shared_root(timeout)
        if root is None:
            return None
        first = _within(root, source, must_exist=True)
        second = "" if output is None else _within(root, output, must_exist=False)
        return None if first is None or second is None else (first, second)

    def _shared_root(self, timeout: float | None) -> str | None:
        """Gives the directory as this process sees it; asks the server once."""
        with self._lock:
            if not self._asked:
                request = server_info_pb2.GetServerInfoRequest()
                try:
                    info = self._stub.GetServerInfo(request, timeout=timeout)
                except grpc.RpcError:
                    return None  # the call that follows says why
                self._asked = True
                if info.HasField("shared_directory"):
                    self._root = _find(info.shared_directory, self._directory)
            return self._root


def _find(announced: server_info_pb2.SharedDirectory, own: PathOrStr | None) -> str | None:
    """Gives the real path of the directory; None when what is there is another one."""
    root = os.path.realpath(announced.path if own is None else own)
    try:
        found = Path(root).stat()
    except OSError:
        return None
    same = (found.st_dev, found.st_ino) == (announced.device, announced.inode)
    return root if same else None


def _within(root: str, path: PathOrStr, *, must_exist: bool) -> str | None:
    """Gives a path within the directory, links followed; None when it cannot be named."""
    real = os.path.realpath(path)
    try:
        if not stat.S_ISREG(Path(real).stat().st_mode):
            return None
    except FileNotFoundError:
        if must_exist or not Path(real).parent.is_dir():
            return None
    except OSError:
        return None
    prefix = root if root == "/" else f"{root}/"
    if not real.startswith(prefix) or not os.fspath(path):
        return None
    name = real.removeprefix(prefix)
    return name if name.isascii() or _is_utf8(name) else None


def _is_utf8(name: str) -> bool:
    """Tells whether a name may be a string of the API: surrogates stand for other bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _finish(
    call: Callable[[], Iterable[Reply]], source: PathOrStr, progress: Progress
) -> Reply | None:
    """Makes a call and takes it to its end; None where bytes have to be sent instead."""
    try:
        with translate_errors():
            return _read(call(), source, progress)
    except KVCompressError as error:
        if _may_be_streamed(error):
            return None
        raise


def _read(replies: Iterable[Reply], source: PathOrStr, progress: Progress) -> Reply:
    """Reads a reply to its last message, which has the trailer."""
    size, told = Path(source).stat().st_size, 0
    with open_progress(progress, source) as advance:
        for reply in replies:
            if reply.HasField("trailer"):
                advance(size - told)
                return reply
            advance(reply.progress.bytes_read - told)
            told = reply.progress.bytes_read
    raise UnavailableError("the server ended without a report")


def _may_be_streamed(error: KVCompressError) -> bool:
    """Tells whether a failure is one of naming files, so that sending them may do."""
    if isinstance(error, UnimplementedError | UnavailableError | PermissionDeniedError):
        return True
    return error.field in {"input_path", "output_path"} and not isinstance(error, AbortedError)
