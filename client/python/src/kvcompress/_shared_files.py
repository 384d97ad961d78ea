# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Shared-directory transfers: calls that name files instead of sending them."""

import atexit
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import grpc

from kvcompress._calls import translate_errors
from kvcompress._output_file import partial_path, publish
from kvcompress._progress import Progress, open_progress
from kvcompress._reports import (
    CompressionResult,
    DecompressionReport,
    DecompressionResult,
)
from kvcompress._requests import PathOrStr
from kvcompress._warnings import report_with_warnings
from kvcompress.connection import Connection
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
# How long a server may take to notice that a call was broken off, as a rule.
_LATE_NAME_SECONDS = 0.25
"""Input and output, relative to the shared directory; the output empty when there is none."""

OnStart = Callable[[grpc.Call], object]
"""Is called with the gRPC call once it has started, so that another thread can cancel it."""

Request = TypeVar("Request")
Reply = TypeVar("Reply", service_pb2.CompressFileResponse, service_pb2.DecompressFileResponse)


class SharedFiles:
    """Makes the calls of one client that name files.

    Thread safe. A method returns None where bytes have to be sent instead: the target is no unix
    socket, the server shares no directory, or another one, a file lies elsewhere, the
    server may not open it, or this process may not rename what the server writes.

    The server writes outputs under another name in their directory. They get their own when
    callbacks have returned and warnings were issued, none of which leaves an output if it raises.
    """

    def __init__(self, stub: CompressionServiceStub, connection: Connection) -> None:
        """Takes what makes the calls, and the connection that it uses."""
        self._stub = stub
        self._connection = connection
        self._local = connection.target.startswith("unix:")
        self._lock = threading.Lock()
        self._asked = False
        self._root: str | None = None

    def directory(self, timeout: float) -> str | None:
        """Returns the shared directory, where it is here too; may ask the server, for seconds."""
        return self._shared_root(timeout) if self._local else None

    def includes(self, folder: PathOrStr, timeout: float) -> bool:
        """Returns whether files of a folder can be named; may ask the server, for seconds."""
        root = self.directory(timeout)
        return root is not None and Path(os.path.realpath(folder)).is_relative_to(root)

    def compress(
        self,
        source: object,
        output: PathOrStr | None,
        options: service_pb2.CompressOptions,
        *,
        overwrite: bool,
        progress: Progress,
        timeout: float | None,
        on_start: OnStart = lambda call: None,
    ) -> CompressionResult | None:
        """Compresses a file into another; see Client.compress."""
        if not isinstance(source, str | os.PathLike) or output is None:
            return None
        target = Path(os.path.realpath(output))
        with _unpublished(target) as partial:
            names = self._names(source, partial, timeout)
            if names is None or not self._may_rename_in(target.parent):
                return None
            request = service_pb2.CompressFileRequest(
                options=options, input_path=names[0], output_path=names[1]
            )
            call = _Call(self._stub.CompressFile, request, timeout, on_start)
            reply = call.finish(source, progress)
            if reply is None:
                return None
            report = report_with_warnings(reply.trailer)
            publish(partial, target, overwrite=overwrite)
        return CompressionResult(report, None, Path(output), None)

    def decompress(
        self,
        source: object,
        output: PathOrStr | None,
        options: service_pb2.DecompressOptions,
        *,
        overwrite: bool,
        progress: Progress,
        timeout: float | None,
        reuse: bool = False,
        on_start: OnStart = lambda call: None,
    ) -> DecompressionResult | None:
        """Restores a file from another; see Client.decompress."""
        if not isinstance(source, str | os.PathLike):
            return None
        request = service_pb2.DecompressFileRequest(options=options)

        def restore(written: Path | None) -> DecompressionReport | None:
            names = self._names(source, written, timeout)
            if names is None:
                return None
            request.input_path, request.output_path = names
            call = _Call(self._stub.DecompressFile, request, timeout, on_start)
            reply = call.finish(source, progress)
            return None if reply is None else DecompressionReport.from_proto(reply.trailer)

        if options.verify_only:
            report = restore(None)
            return None if report is None else DecompressionResult(report, None, None, None, None)
        if output is None:
            return None
        target = Path(os.path.realpath(output))
        if reuse:  # of the file that has the name
            request.overwrite = request.reuse = True
            try:
                report = restore(target)
            except KVCompressError:
                raise
            except BaseException:  # of a callback
                _remove(target, os.getpid())
                raise
        else:
            if not self._may_rename_in(target.parent):
                return None
            with _unpublished(target) as partial:
                report = restore(partial)
                if report is not None:
                    publish(partial, target, overwrite=overwrite)
        if report is None:
            return None
        return DecompressionResult(report, None, None, None, Path(output))

    def _may_rename_in(self, folder: Path) -> bool:
        """Returns whether this process may rename files that the server makes in a folder."""
        if not os.access(folder, os.W_OK | os.X_OK):
            return False
        if self._connection.server is not None:
            return True
        found = folder.stat()
        return not found.st_mode & stat.S_ISVTX or os.geteuid() in (0, found.st_uid)

    def _names(
        self, source: PathOrStr, output: PathOrStr | None, timeout: float | None
    ) -> Names | None:
        """Returns the names of two files, when both can be named."""
        if not self._local:
            return None
        root = self._shared_root(timeout)
        if root is None:
            return None
        first = _within(root, source, must_exist=True)
        second = "" if output is None else _within(root, output, must_exist=False)
        return None if first is None or second is None else (first, second)

    def _shared_root(self, timeout: float | None) -> str | None:
        """Returns the directory as this process sees it; asks the server once."""
        self._connection.check_process()
        with self._lock:
            if not self._asked:
                request = server_info_pb2.GetServerInfoRequest()
                try:
                    info = self._stub.GetServerInfo(request, timeout=timeout)
                except grpc.RpcError:
                    return None  # the call that follows says why
                self._asked = True
                if info.HasField("shared_directory"):
                    self._root = _find(info.shared_directory, self._connection.shared_directory)
            return self._root


def _find(announced: server_info_pb2.SharedDirectory, own: PathOrStr | None) -> str | None:
    """Returns the real path of the directory; None when what is there is another one."""
    root = os.path.realpath(announced.path if own is None else own)
    try:
        found = Path(root).stat()
    except OSError:
        return None
    same = (found.st_dev, found.st_ino) == (announced.device, announced.inode)
    return root if same else None


def _within(root: str, path: PathOrStr, *, must_exist: bool) -> str | None:
    """Returns a path within the directory, links followed; None when it cannot be named."""
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
    """Returns whether a name may be a string of the API: surrogates stand for other bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def _unpublished(target: Path) -> Iterator[Path]:
    """Yields a name for an output until it gets its own; what still has it then is removed.

    A server that was asked to stop may set the name a little later. After a call that this side
    broke off, as by a callback that raises, the name is awaited for a moment; and it is looked for
    again when the process ends.
    """
    partial = partial_path(target)
    try:
        yield partial
    except BaseException as error:
        atexit.register(_remove, partial, os.getpid())
        if not isinstance(error, KVCompressError):
            give_up = time.monotonic() + _LATE_NAME_SECONDS
            while not partial.exists() and time.monotonic() < give_up:
                time.sleep(_LATE_NAME_SECONDS / 20)
        raise
    finally:
        _remove(partial, os.getpid())


def _remove(path: Path, owner: int) -> None:
    """Removes a file, if it is there, unless a forked process would do so."""
    if os.getpid() == owner:
        path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _Call(Generic[Request, Reply]):
    """A call that names files, to be made."""

    method: "grpc.UnaryStreamMultiCallable[Request, Reply]"
    request: Request
    timeout: float | None
    on_start: OnStart

    def finish(self, source: PathOrStr, progress: Progress) -> Reply | None:
        """Makes the call and takes it to its end; None where bytes have to be sent instead.

        A call that is left before its end, as by a callback that raises, is cancelled.
        """
        try:
            with translate_errors():
                replies = self.method(self.request, timeout=self.timeout)
                self.on_start(replies)
                try:
                    return _read(replies, source, progress)
                finally:
                    replies.cancel()
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
    """Returns whether a failure concerns file names, so that streaming may succeed."""
    if isinstance(error, UnimplementedError | UnavailableError | PermissionDeniedError):
        return True
    return error.field in {"input_path", "output_path"} and not isinstance(error, AbortedError)
