# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A Compress call that a test holds open while the server stops."""

import contextlib
import json
import queue
import struct

import grpc
from server_process import PATIENCE

from kvcompress.v1.compression_service_pb2 import CompressOptions, CompressRequest, CompressResponse
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub


def small_cache() -> bytes:
    """A safetensors file of one tensor of 64 F32 zeros."""
    tensor = {"dtype": "F32", "shape": [1, 1, 8, 8], "data_offsets": [0, 256]}
    header = json.dumps({"layer_0_key": tensor}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(256)


class CompressStream:
    """A Compress call of `small_cache` that waits for the last byte."""

    def __init__(self, channel: grpc.Channel) -> None:
        """Returns once the server has begun to answer."""
        self.requests = [
            CompressRequest(options=CompressOptions(codec="int4")),
            CompressRequest(safetensors=small_cache()[:-1]),
        ]
        self._queue: queue.Queue[CompressRequest | None] = queue.Queue()
        for request in self.requests:
            self._queue.put(request)
        self.call = CompressionServiceStub(channel).Compress(
            iter(self._queue.get, None), timeout=3 * PATIENCE
        )
        self.responses: list[CompressResponse] = [next(self.call)]
        assert self.responses[0].HasField("begin")

    def finish(self) -> None:
        """Sends the last byte, and takes every response."""
        self.requests.append(CompressRequest(safetensors=small_cache()[-1:]))
        self._queue.put(self.requests[-1])
        self._queue.put(None)
        self.responses += self.call

    def code(self) -> grpc.StatusCode:
        """Waits for the end of a call that fails; its code."""
        with contextlib.suppress(grpc.RpcError):
            self.responses += self.call
        self._queue.put(None)
        return self.call.code()
