# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Fairness: a client with many streams does not starve another."""

import time
from pathlib import Path

import grpc
from calls import MIB, OpenStream, cache, details, metric
from server_process import PATIENCE, ServerProcess, Start

from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

# Streams that fit: each takes 4 MiB, its header, and a sample of a tensor.
FIT = 8


def start_server(start: Start, folder: Path, *flags: str) -> ServerProcess:
    """With an address for each of two clients: what connects by TCP is one, the socket another."""
    listen = ["--listen", "127.0.0.1:0", "--listen", f"unix:{folder}/kv.sock"]
    return start(*listen, "--memory-budget-bytes", str((4 * FIT + 3) * MIB), *flags)


def refusal(stream: OpenStream) -> float:
    """Waits until a stream is refused; the seconds after which to come back."""
    error = stream.error()
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    delay = details(error)[1]
    assert delay is not None
    return delay


def test_one_client_alone_may_have_everything(start: Start, tmp_path: Path) -> None:
    """Nothing is kept back for others who do not come."""
    server = start_server(start, tmp_path)
    with server.channel() as channel:
        streams = [OpenStream(channel).begun() for _ in range(FIT)]
        refusal(OpenStream(channel))
        for stream in streams:
            stream.finish()


def test_what_ends_makes_room_for_who_has_nothing(start: Start, tmp_path: Path) -> None:
    """The client with many streams is first to ask, and the other gets it."""
    server = start_server(start, tmp_path)
    with server.channel() as many, server.channel(server.addresses[1]) as few:
        streams = [OpenStream(many).begun() for _ in range(FIT)]
        assert refusal(OpenStream(few)) < 1
        streams.pop().finish()
        refusal(OpenStream(many))
        streams.append(OpenStream(few).begun())
        assert metric(server, "kvcompress_inflight_bytes") >= 4 * FIT * MIB
        for stream in streams:
            stream.finish()


def test_one_call_among_many_comes_through(start: Start, tmp_path: Path) -> None:
    """A client that always has more to send than fits, and one with a call now and then."""
    server = start_server(start, tmp_path)
    refused = 0
    with server.channel() as many, server.channel(server.addresses[1]) as few:
        streams: list[OpenStream] = []
        for _ in range(10):
            while is_let_in(stream := OpenStream(many)):
                streams.append(stream)
            give_up = time.monotonic() + PATIENCE
            served = False
            while not served:
                assert time.monotonic() < give_up
                try:
                    *_, last = CompressionServiceStub(few).Compress(cache(MIB), timeout=PATIENCE)
                    served = last.HasField("trailer")
                except grpc.RpcError as error:
                    refused += 1
                    delay = details(error)[1]
                    # One of the others ends, and two ask for its place.
                    streams.pop(0).finish()
                    waiting = [OpenStream(many), OpenStream(many)]
                    streams += [stream for stream in waiting if is_let_in(stream)]
                    time.sleep(delay or 0)
        assert len(streams) >= FIT / 2
        for stream in streams:
            stream.finish()
    assert refused > 0
    print(f"refused {refused} times for 10 calls")


def is_let_in(stream: OpenStream) -> bool:
    """Whether a stream begins."""
    try:
        stream.begun()
    except grpc.RpcError:
        stream.send(None)
        return False
    return True


def test_a_client_can_be_held_to_a_part(start: Start, tmp_path: Path) -> None:
    """Then another is admitted immediately."""
    server = start_server(start, tmp_path, "--client-budget-percent", "50")
    with server.channel() as many, server.channel(server.addresses[1]) as few:
        streams = [OpenStream(many).begun() for _ in range(FIT // 2)]
        refusal(OpenStream(many))
        streams += [OpenStream(few).begun() for _ in range(FIT // 2)]
        for stream in streams:
            stream.finish()
