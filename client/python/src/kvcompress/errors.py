# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The errors of the client: one family, one class for each canonical code of gRPC."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from kvcompress._inputs import printable

if TYPE_CHECKING:
    from kvcompress._reports import CompressionReport
    from kvcompress._tensor_report import MissedBound

_DETAILS_KEY = "grpc-status-details-bin"


class KVCompressError(Exception):
    """A call that failed, and what is known about the place.

    Attributes:
        code: Canonical code, such as `DATA_LOSS`.
        message: A sentence for people.
        reason: UPPER_SNAKE_CASE cause for programs, such as `PAYLOAD_DAMAGED`; empty when the
            call did not reach the service. `NO_TRAILER`, `BAD_STREAM`, `BOUNDS_MISSED`,
            `NO_TENSORS`, `INVALID_ADDRESS`, `FORKED`, `CLOSED` and `SERVER_ENDED` are the client's
            own.
        tensor: Name of the tensor concerned.
        offset: Byte position in the input where a rule is broken.
        element: Index of the offending element in the flattened tensor.
        limit: The limit that was exceeded, in the unit of the message.
        field: Path of the wrong field of the request, such as `options.codec`.
        profile: Digest of the profile concerned, such as the one that an artefact needs and the
            server does not have (reason `PROFILE_MISSING`).
    """

    code: ClassVar[str] = "UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        tensor: str | None = None,
        offset: int | None = None,
        element: int | None = None,
        limit: int | None = None,
        field: str | None = None,
        profile: str | None = None,
    ) -> None:
        """Keeps the place and the message."""
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.tensor = tensor
        self.offset = offset
        self.element = element
        self.limit = limit
        self.field = field
        self.profile = profile

    def __str__(self) -> str:
        """Returns the code, the reason when there is one, and the message, safe for a terminal."""
        cause = f"{self.code} ({self.reason})" if self.reason else self.code
        return f"{cause}: {printable(self.message)}"


class CallCancelledError(KVCompressError):
    """The server cancelled the call, or the client was closed during it.

    A call of `kvcompress.aio` whose task is cancelled raises `asyncio.CancelledError`, as every
    awaitable does.
    """

    code = "CANCELLED"


class UnknownError(KVCompressError):
    """An error without a better class."""

    code = "UNKNOWN"


class InvalidArgumentError(KVCompressError, ValueError):
    """The input or the options break a rule."""

    code = "INVALID_ARGUMENT"


class DeadlineExceededError(KVCompressError, TimeoutError):
    """The call took longer than its timeout."""

    code = "DEADLINE_EXCEEDED"


class NotFoundError(KVCompressError):
    """What was asked for does not exist."""

    code = "NOT_FOUND"


class AlreadyExistsError(KVCompressError, FileExistsError):
    """What was to be made exists, such as an output that may not be replaced."""

    code = "ALREADY_EXISTS"


class PermissionDeniedError(KVCompressError):
    """The caller may not do this."""

    code = "PERMISSION_DENIED"


class ResourceExhaustedError(KVCompressError):
    """The server is at its budget; try again later."""

    code = "RESOURCE_EXHAUSTED"


class FailedPreconditionError(KVCompressError):
    """The input is already compressed or no artefact, or the server lacks the profile."""

    code = "FAILED_PRECONDITION"


class AbortedError(KVCompressError):
    """The call was aborted."""

    code = "ABORTED"


class OutOfRangeError(KVCompressError):
    """The input is larger than a limit of the server."""

    code = "OUT_OF_RANGE"


class UnimplementedError(KVCompressError):
    """An artefact of a later format version, or a call that the server does not know."""

    code = "UNIMPLEMENTED"


class InternalError(KVCompressError):
    """A fault of the server."""

    code = "INTERNAL"


class UnavailableError(KVCompressError):
    """The server cannot be reached."""

    code = "UNAVAILABLE"


class DataLossError(KVCompressError):
    """An artefact, or an answer, is damaged, cut short, or not the one expected."""

    code = "DATA_LOSS"


class UnauthenticatedError(KVCompressError):
    """The caller is not known."""

    code = "UNAUTHENTICATED"


_BY_CODE: Mapping[str, type[KVCompressError]] = {
    error.code: error for error in KVCompressError.__subclasses__()
}


class QualityError(KVCompressError):
    """Bounds that were given do not hold; no output was written.

    Attributes:
        report: What `compress` measured.
        missed: Every bound that a tensor misses, the one that is missed by most first.
    """

    code = "FAILED_PRECONDITION"

    def __init__(
        self, message: str, report: "CompressionReport", missed: "tuple[MissedBound, ...]"
    ) -> None:
        """Keeps the report and the bounds with the message."""
        super().__init__(message, reason="BOUNDS_MISSED", tensor=missed[0].tensor)
        self.report = report
        self.missed = missed

    def __reduce__(self) -> tuple[type["QualityError"], tuple[object, ...]]:
        """Lets another process have it, as pools and Ray do."""
        return type(self), (self.message, self.report, self.missed)

    def __str__(self) -> str:
        """Returns the message."""
        return printable(self.message)


def from_rpc_error(error: grpc.RpcError) -> KVCompressError:
    """Returns the error of this family for one of gRPC's.

    Args:
        error: What a call raised.

    Returns:
        An instance of the class of its code, with what the server's details say.
    """
    if not isinstance(error, grpc.Call | grpc.aio.AioRpcError):
        return UnknownError(str(error))
    info = _error_info(error.trailing_metadata() or ())
    places = info.metadata
    return _BY_CODE.get(error.code().name, UnknownError)(
        error.details() or "",
        reason=info.reason,
        tensor=places.get("tensor"),
        offset=_number(places, "offset"),
        element=_number(places, "element"),
        limit=_number(places, "limit"),
        field=places.get("field"),
        profile=places.get("profile"),
    )


def _error_info(metadata: Iterable[tuple[str, str | bytes]]) -> error_details_pb2.ErrorInfo:
    """Finds the ErrorInfo in a call's trailing metadata; an empty one when there is none."""
    info = error_details_pb2.ErrorInfo()
    for key, value in metadata:
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                details = status_pb2.Status.FromString(value).details
                if any(detail.Unpack(info) for detail in details):
                    return info
            except DecodeError:
                continue
    return info


def _number(places: Mapping[str, str], key: str) -> int | None:
    """Reads a decimal value of an ErrorInfo's metadata."""
    text = places.get(key, "")
    return int(text) if text.isascii() and text.isdigit() else None
