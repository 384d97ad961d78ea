# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Calls that a test paces itself, and what their errors say."""

import json
import queue
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from server_process import PATIENCE, ServerProcess, wait_until

import kvcompress
from kvcompress.v1.compression_service_pb2 import CompressOptions, CompressRequest, CompressResponse
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

MIB = 1 << 20


def header(size: int) -> bytes:
    """The beginning of a safetensors file of one F32 tensor of `size` bytes."""
    tensor = {"dtype": "F32", "shape": [1, 1, size // 512, 128], "data_offsets": [0, size]}
    text = json.dumps({"layer_0_key": tensor}).encode()
    return struct.pack("<Q", len(text)) + text


def cache(size: int) -> Iterator[CompressRequest]:
    """The requests that compress a cache of zeros."""
    yield CompressRequest(options=CompressOptions(codec="int4"))
    yield CompressRequest(safetensors=header(size))
    for begin in range(0, size, MIB):
        yield CompressRequest(safetensors=bytes(min(MIB, size - begin)))


class OpenStream:
    """A Compress call that sends what it is asked to, when it is asked to."""

    def __init__(self, channel: grpc.Channel, codec: str = "int4", size: int = MIB) -> None:
        """Sends the options and a header, and waits for nothing."""
        self._queue: queue.Queue[CompressRequest | None] = queue.Queue()
        self.send(CompressRequest(options=CompressOptions(codec=codec)))
        self.send(CompressRequest(safetensors=header(size)))
        self.call = CompressionServiceStub(channel).Compress(
            iter(self._queue.get, None), timeout=3 * PATIENCE
        )

    def send(self, request: CompressRequest | None) -> None:
        """Sends a request; None ends the stream."""
        self._queue.put(request)

    def begun(self) -> "OpenStream":
        """Waits until the server has let the stream in."""
        first: CompressResponse = next(self.call)
        assert first.HasField("begin")
        return self

    def finish(self, size: int = MIB) -> CompressResponse:
        """Sends the values, and returns the last response."""
        self.send(CompressRequest(safetensors=bytes(size)))
        self.send(None)
        last = None
        for response in self.call:
            last = response
        assert last is not None
        return last

    def error(self) -> grpc.RpcError:
        """Waits for the end of a call that fails."""
        try:
            for _ in self.call:
                pass
        except grpc.RpcError as error:
            self.send(None)
            return error
        raise AssertionError("the call did not fail")


def trailers(error: grpc.RpcError) -> dict[str, Any]:
    """The trailing metadata of an error, by key."""
    metadata: Any = error.trailing_metadata()
    return dict(metadata or ())


def details(error: grpc.RpcError) -> tuple[error_details_pb2.ErrorInfo, float | None]:
    """The ErrorInfo of an error, and the seconds of its RetryInfo."""
    status = status_pb2.Status()
    status.ParseFromString(trailers(error)["grpc-status-details-bin"])
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    delay = None
    for detail in status.details:
        if detail.Is(retry.DESCRIPTOR):
            detail.Unpack(retry)
            delay = retry.retry_delay.ToTimedelta().total_seconds()
        elif detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
    return info, delay


def metric(server: ServerProcess, series: str) -> float:
    """The value of a series, labels as they are written."""
    found = re.search(rf"^{re.escape(series)} (\S+)$", server.get("/metrics")[2], re.MULTILINE)
    assert found, series
    return float(found[1])


def page_of_a_used_server(server: ServerProcess, sample: Path) -> str:
    """The metrics page after a cache was compressed and restored: series by codec are there too."""
    with kvcompress.Client(server.addresses[0]) as client:
        artefact = client.compress(sample, codec="int8").artefact
        assert artefact is not None
        client.decompress(artefact)
    decoded = 'kvcompress_codec_seconds_count{codec="int8",stage="decode"} 1\n'
    ended = 'kvcompress_request_duration_seconds_count{method="Decompress"} 1\n'
    wait_until(lambda: all(line in server.get("/metrics")[2] for line in (decoded, ended)))
    return server.get("/metrics")[2]


def wait_until_released(server: ServerProcess) -> float:
    """Waits until no call holds memory; the seconds that it took."""
    return wait_until(lambda: metric(server, "kvcompress_inflight_bytes") == 0, "nothing reserved")
