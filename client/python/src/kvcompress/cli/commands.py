# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the command line does."""

import mmap
import os
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kvcompress.cli.flags import PROGRAM, Flags, Mode, UsageError, parse
from kvcompress.cli.gate import apply_gate
from kvcompress.cli.report_json import (
    Json,
    compression_json,
    damaged_json,
    decompression_json,
    info_json,
    render,
)
from kvcompress.client import Client
from kvcompress.errors import (
    DataLossError,
    FailedPreconditionError,
    KVCompressError,
    UnavailableError,
    UnimplementedError,
)
from kvcompress.inputs import NoWriterError, open_input, printable
from kvcompress.payload import PayloadError, read_header
from kvcompress.reports import CompressionReport

OK, ERROR, GATE = 0, 1, 2

_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class CommandError(Exception):
    """A command that failed, with the sentence to print."""


def main(arguments: Sequence[str]) -> int:
    """Runs the command line; see `python -m kvcompress -help`.

    Args:
        arguments: Those after the program's name.

    Returns:
        The exit status.
    """
    # Errors are reported once, by this program; gRPC's own log only on request.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        flags = parse(arguments)
    except UsageError as error:
        print(f"Error: {printable(str(error))}\nRun {PROGRAM} -help for usage.", file=sys.stderr)
        return ERROR
    for number in (signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda received, frame: sys.exit(128 + received))
    try:
        return _info(flags) if flags.mode is Mode.INFO else _call(flags)
    except KVCompressError as error:
        print(f"Error: {printable(_explained(error, flags))}", file=sys.stderr)
    except NoWriterError as error:
        print(f"Error: read input: {printable(str(error))}", file=sys.stderr)
    except (CommandError, PayloadError, OSError, ImportError) as error:
        print(f"Error: {printable(str(error))}", file=sys.stderr)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return ERROR


def _call(flags: Flags) -> int:
    """Opens the files, then the connection, and does what was asked for."""
    source = _input_path(flags.input)
    with _output(flags.output) as (spool, publish), _client(flags) as client:
        if flags.verbose:
            info = client.server_info()
            versions = f"version {info.version}, format {info.format_version}"
            print(printable(f"service: {versions}, kernels {info.kernels}"), file=sys.stderr)
        if flags.mode in {Mode.COMPRESS, Mode.MEASURE}:
            report = _compress(client, flags, source, spool)
            report, holds = apply_gate(flags.options, report)
            result = compression_json(report, verbose=flags.verbose)
        else:
            holds, result = True, _decompress(client, flags, source, spool)
        if holds and spool is not None:
            publish()
    _print(result, flags)
    return OK if holds else GATE


def _client(flags: Flags) -> Client:
    """Gives a client of the server.

    Raises:
        CommandError: A file for TLS cannot be read, or is empty.
    """
    return Client(
        flags.server,
        root_certificates=_pem(flags.tls_ca),
        certificate_chain=_pem(flags.tls_cert),
        private_key=_pem(flags.tls_key),
        shared_directory=flags.shared_directory or None,
    )


def _pem(path: str) -> bytes | None:
    """Gives what a file for TLS holds; None for no path."""
    if not path:
        return None
    try:
        pem = Path(path).read_bytes()
    except OSError:
        pem = b""
    if not pem:
        raise CommandError(f"{path} cannot be read, or is empty")
    return pem


def _compress(client: Client, flags: Flags, source: str, spool: Path | None) -> CompressionReport:
    """Compresses to `spool`, or measures where there is none."""
    progress = _draws_progress(flags)
    if spool is None:
        return client.measure(source, progress=progress, **flags.options)
    return client.compress(source, spool, progress=progress, **flags.options).report


def _decompress(client: Client, flags: Flags, source: str, spool: Path | None) -> Json:
    """Decompresses to `spool`, or verifies where there is none."""
    try:
        report = client.decompress(
            source,
            spool,
            tensors=flags.tensors,
            tokens=flags.tokens,
            expected_labels=flags.labels,
            verify_only=spool is None,
            progress=_draws_progress(flags),
        ).report
    except (DataLossError, FailedPreconditionError) as error:
        if spool is None:
            _print(damaged_json(error), flags)
        raise
    verified = {"verified": True} if spool is None else {}
    return {**verified, **decompression_json(report)}


def _info(flags: Flags) -> int:
    """Lists an artefact."""
    with open_input(_input_path(flags.input)) as file, _mapped(file) as data:
        try:
            result = info_json(read_header(data), len(data))
        except PayloadError as error:
            if error.code != "FAILED_PRECONDITION":
                raise
            words = "the input is a safetensors file, but not a compressed one"
            raise CommandError(words) from None
    _print(result, flags)
    return OK


@contextmanager
def _mapped(file: BinaryIO) -> Iterator[bytes | mmap.mmap]:
    """Gives the bytes of a file, without reading those that are not looked at."""
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
        yield file.read()
        return
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data


def _input_path(path: str) -> str:
    """Gives the path to read, once it is known that it can be.

    Raises:
        CommandError: It cannot.
    """
    path = "/dev/stdin" if path == "-" else path
    try:
        if not stat.S_ISFIFO(Path(path).stat().st_mode):
            with Path(path).open("rb"):
                pass
    except OSError as error:
        raise CommandError(f"read input: open {path}: {_cause(error)}") from None
    return path


class _Publish:
    """Puts a finished file where the caller wants it."""

    def __init__(self, spool: Path, output: str) -> None:
        """Takes the finished file's path and the caller's."""
        self._spool, self._output = spool, output

    def __call__(self) -> None:
        """Renames the file, or copies it where the output is a stream.

        Raises:
            CommandError: It cannot.
        """
        try:
            if self._output == "-":
                with self._spool.open("rb") as file:
                    shutil.copyfileobj(file, sys.stdout.buffer, 1 << 20)
                    sys.stdout.buffer.flush()
            elif _is_stream(self._output):
                with self._spool.open("rb") as file, Path(self._output).open("wb") as stream:
                    shutil.copyfileobj(file, stream, 1 << 20)
            else:
                self._spool.replace(os.path.realpath(self._output))
        except OSError as error:
            raise CommandError(f"write output: write {self._output}: {_cause(error)}") from None


@contextmanager
def _later_signals() -> Iterator[None]:
    """Puts off the signals that end a process. A mask would not: other threads take them."""
    pending: list[int] = []
    before = {
        number: signal.signal(number, lambda received, frame: pending.append(received))
        for number in _ENDING
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for received in pending:
            signal.raise_signal(received)


@contextmanager
def _output(output: str) -> Iterator[tuple[Path | None, _Publish]]:
    """Gives a path for an output that is not finished, beside the one it is for.

    Raises:
        CommandError: There can be no output there.
    """
    if not output:
        yield None, _Publish(Path(), "")
        return
    if output == "-" and sys.stdout.isatty():
        raise CommandError("write output: standard output is a terminal")
    stream = output == "-" or _is_stream(output)
    folder = None if stream else Path(os.path.realpath(output)).parent
    try:
        with _later_signals():  # until the object is there, nothing would remove the folder
            spool = tempfile.TemporaryDirectory(prefix=".kvcompress-", dir=folder)
    except OSError as error:
        raise CommandError(f"write output: open {output}: {_cause(error)}") from None
    with spool as name:
        path = Path(name, "output")
        yield path, _Publish(path, output)


def _is_stream(path: str) -> bool:
    """Tells whether something is there that is no regular file."""
    try:
        return not stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:
        return False


def _draws_progress(flags: Flags) -> bool:
    """Tells whether to draw a bar."""
    if flags.progress == "auto":
        return sys.stderr.isatty() and _has_tqdm()
    return flags.progress == "always"


def _has_tqdm() -> bool:
    """Tells whether tqdm is installed."""
    try:
        import tqdm  # type: ignore[import-untyped,unused-ignore]  # noqa: F401
    except ImportError:
        return False
    return True


def _print(result: Json, flags: Flags) -> None:
    """Prints the JSON: elsewhere than the cache."""
    stream = sys.stderr if flags.output == "-" else sys.stdout
    stream.buffer.write(render(result))
    stream.flush()


def _explained(error: KVCompressError, flags: Flags) -> str:
    """Gives the sentence for a failed call; names a server that is not there."""
    unreachable = isinstance(error, UnavailableError | UnimplementedError)
    if flags.server is None or not unreachable or error.reason:
        return error.message
    return f"server {flags.server}: {error.message or 'no such service there'}"


def _cause(error: OSError) -> str:
    """Gives the system's words for an error, as kv-compress writes them."""
    text = os.strerror(error.errno) if error.errno else str(error)
    return text[:1].lower() + text[1:]
