# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Calls of grpc.health.v1."""

import contextlib

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

SERVING = int(HealthCheckResponse.SERVING)
NOT_SERVING = int(HealthCheckResponse.NOT_SERVING)
SERVICE_UNKNOWN = int(HealthCheckResponse.SERVICE_UNKNOWN)


def check(channel: grpc.Channel, service: str, timeout: float) -> int:
    """The status now."""
    call = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        HealthCheckRequest.SerializeToString,
        HealthCheckResponse.FromString,
    )
    return int(call(HealthCheckRequest(service=service), timeout=timeout).status)


class Watch:
    """A Watch call that has seen its first status."""

    def __init__(self, channel: grpc.Channel, service: str = "", timeout: float = 60) -> None:
        """Returns once the first status is there."""
        call = channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            HealthCheckRequest.SerializeToString,
            HealthCheckResponse.FromString,
        )
        self.call = call(HealthCheckRequest(service=service), timeout=timeout)
        self.first = int(next(self.call).status)

    def rest(self) -> tuple[list[int], grpc.StatusCode]:
        """Waits for the end; the statuses that came, and the code."""
        statuses: list[int] = []
        with contextlib.suppress(grpc.RpcError):
            statuses.extend(int(response.status) for response in self.call)
        return statuses, self.call.code()
