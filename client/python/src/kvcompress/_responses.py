# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Readers of response streams: they turn messages into files and a report.

Independent of how the messages arrive.
"""

from kvcompress._reports import CompressionReport, DecompressionReport
from kvcompress._sinks import FileAssembler, Sink
from kvcompress._warnings import report_with_warnings
from kvcompress.errors import DataLossError
from kvcompress.v1 import compression_service_pb2 as service_pb2


class CompressResponses:
    """Reads the responses of Compress."""

    def __init__(self, artefact: Sink, reconstructed: Sink | None) -> None:
        """Takes where the artefact goes, and the reconstructed file if it is asked for."""
        self._artefact = artefact
        self._reconstructed = None if reconstructed is None else FileAssembler(reconstructed)
        self._assembler: FileAssembler | None = None
        self._report: CompressionReport | None = None

    def take(self, response: service_pb2.CompressResponse) -> None:
        """Takes the next response.

        Raises:
            DataLossError: It has no place in the stream, reason `BAD_STREAM`.
            OSError: A chunk cannot be written.
        """
        which = response.WhichOneof("message")
        if self._report is None and which == "begin" and self._assembler is None:
            self._assembler = FileAssembler(self._artefact, response.begin.reserved_header_bytes)
        elif self._report is None and which == "artefact" and self._assembler is not None:
            self._assembler.take(response.artefact)
        elif self._report is None and which == "reconstructed" and self._reconstructed is not None:
            self._reconstructed.take(response.reconstructed)
        elif self._report is None and which == "trailer" and self._assembler is not None:
            self._report = report_with_warnings(response.trailer)
        else:
            raise _out_of_place(which)

    def finish(self) -> CompressionReport:
        """Ends the stream and returns the report.

        Raises:
            DataLossError: There was no trailer, reason `NO_TRAILER`, or a size does not match,
                reason `BAD_STREAM`.
        """
        if self._report is None or self._assembler is None:
            raise _no_trailer()
        self._assembler.finish(self._report.compressed_size_bytes)
        if self._reconstructed is not None:
            self._reconstructed.finish_safetensors(self._report.original_size_bytes)
        return self._report


class DecompressResponses:
    """Reads the responses of Decompress."""

    def __init__(self, restored: Sink) -> None:
        """Takes where the restored file goes."""
        self._assembler = FileAssembler(restored)
        self._report: DecompressionReport | None = None

    def take(self, response: service_pb2.DecompressResponse) -> None:
        """Takes the next response.

        Raises:
            DataLossError: It has no place in the stream, reason `BAD_STREAM`.
            OSError: A chunk cannot be written.
        """
        which = response.WhichOneof("message")
        if self._report is None and which == "safetensors":
            self._assembler.take(response.safetensors)
        elif self._report is None and which == "trailer":
            self._report = DecompressionReport.from_proto(response.trailer)
        else:
            raise _out_of_place(which)

    def finish(self) -> DecompressionReport:
        """Ends the stream and returns the report.

        Raises:
            DataLossError: There was no trailer, reason `NO_TRAILER`, or the size does not
                match, reason `BAD_STREAM`.
        """
        if self._report is None:
            raise _no_trailer()
        self._assembler.finish(self._report.output_size_bytes)
        return self._report


def _out_of_place(which: str | None) -> DataLossError:
    """Makes the error for a message that does not belong where it came."""
    return DataLossError(f"the answer has {which!r} out of place", reason="BAD_STREAM")


def _no_trailer() -> DataLossError:
    """Makes the error for a stream that ended early."""
    return DataLossError("the answer ended without a trailer", reason="NO_TRAILER")
