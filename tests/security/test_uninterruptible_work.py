# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Work that takes long holds up nobody: it is bounded, can be ended, and others get threads."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy
import pytest
from calls import MIB, details, metric, wait_until_released
from health import SERVING
from server_process import PATIENCE, ServerProcess, Start, wait_until

import kvcompress
from kvcompress.v1 import compression_service_pb2 as pb
from kvcompress.v1 import tensor_pb2
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

HEAD_DIM = 128
MANY = 16
# Seconds within which what does not hang is served, on a machine that is busy.
SOON = 3
# Seconds within which another client's small call is served while patterns are matched.
AT_ONCE = 1


def start_server(start: Start, folder: Path, *flags: str) -> ServerProcess:
    """With an address for each of two clients: what connects by TCP is one, the socket another."""
    listen = ["--listen", "127.0.0.1:0", "--listen", f"unix:{folder}/kv.sock"]
    return start(*listen, "--memory-budget-bytes", str(16 << 30), *flags)


def encode(size: int, codec: str) -> Iterator[pb.CompressRequest]:
    """The requests that compress keys of `size` bytes of BF16, as slowly as can be."""
    options = pb.CompressOptions(codec=codec, effort=pb.EFFORT_BEST)
    yield pb.CompressRequest(options=options)
    shape = [1, 8, size // (8 * 2 * HEAD_DIM), HEAD_DIM]
    spec = tensor_pb2.TensorSpec(name="layers.0.key", dtype=tensor_pb2.DATA_TYPE_BF16, shape=shape)
    yield pb.CompressRequest(tensors=tensor_pb2.TensorTable(tensors=[spec]))
    random = numpy.random.default_rng(1)
    for _ in range(size // MIB):
        values = random.standard_normal(MIB // 2, dtype=numpy.float32)
        data = (values.view(numpy.uint32) >> 16).astype("<u2").tobytes()
        yield pb.CompressRequest(tensor_data=tensor_pb2.TensorChunk(data=data))


def seconds_of_a_small_call(channel: grpc.Channel) -> float:
    """Another client's, of a few hundred bytes."""
    requests = [
        pb.CompressRequest(options=pb.CompressOptions(codec="int4")),
        pb.CompressRequest(tensors=tensor_pb2.TensorTable()),
    ]
    begin = time.monotonic()
    *_, last = CompressionServiceStub(channel).Compress(iter(requests), timeout=PATIENCE)
    assert last.HasField("trailer")
    return time.monotonic() - begin


def assert_free(server: ServerProcess) -> float:
    """Waits until nothing is reserved, and checks that all is well; the seconds of the wait."""
    waited = wait_until_released(server)
    assert server.check() == SERVING
    assert server.get("/healthz")[0] == 200
    with server.channel() as channel:
        assert seconds_of_a_small_call(channel) < SOON
    return waited


def artefact_of_long_names(client: kvcompress.Client) -> bytes:
    """400 tensors whose names have 3,000 characters, nearly all of them the same."""
    names = ["a" * 2997 + f"{i:03}" for i in range(400)]
    artefact = client.compress({name: numpy.zeros(1, numpy.float32) for name in names}).artefact
    assert artefact is not None
    return artefact


@pytest.mark.parametrize("length", [1497, 830], ids=["refused", "the most that is taken"])
def test_a_pattern_blocks_nobody(start: Start, tmp_path: Path, length: int) -> None:
    """One that fails late in every name, from every place in it."""
    server = start_server(start, tmp_path)
    with kvcompress.Client(server.addresses[1]) as client:
        artefact = artefact_of_long_names(client)
    options = pb.DecompressOptions(tensors=["*" + "a" * length + "b"])

    def decompress(channel: grpc.Channel) -> grpc.StatusCode:
        requests = [pb.DecompressRequest(options=options)]
        requests += [
            pb.DecompressRequest(artefact=artefact[begin : begin + MIB])
            for begin in range(0, len(artefact), MIB)
        ]
        with pytest.raises(grpc.RpcError) as caught:
            list(CompressionServiceStub(channel).Decompress(iter(requests), timeout=2))
        code: grpc.StatusCode = caught.value.code()
        return code

    with (
        server.channel() as many,
        server.channel(server.addresses[1]) as few,
        ThreadPoolExecutor(MANY) as threads,
    ):
        calls = [threads.submit(decompress, many) for _ in range(MANY)]
        waits: list[float] = []
        while not all(call.done() for call in calls):
            waits.append(seconds_of_a_small_call(few))
            assert waits[-1] < AT_ONCE
        codes = {call.result() for call in calls}
    print(f"{len(waits)} small calls meanwhile, the longest of {max(waits):.3f} s; {codes}")
    assert codes <= {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.DEADLINE_EXCEEDED}
    assert_free(server)


@pytest.mark.parametrize("codec", ["klt", "auto"])
def test_a_cancelled_encode_ends(start: Start, tmp_path: Path, codec: str) -> None:
    """It would go on for many seconds in one step, with its thread and all of its memory."""
    server = start_server(start, tmp_path)
    size = 128 * MIB
    with server.channel() as channel:
        call = CompressionServiceStub(channel).Compress(encode(size, codec), timeout=PATIENCE)
        received = 'kvcompress_input_bytes_total{method="Compress"}'
        wait_until(lambda: metric(server, received) >= size)
        time.sleep(0.5)
        assert metric(server, "kvcompress_inflight_bytes") > size
        call.cancel()
        waited = assert_free(server)
    print(f"free after {waited:.3f} s")
    assert waited < SOON


def test_an_encode_ends_at_its_deadline_and_at_that_of_the_server(
    start: Start, tmp_path: Path
) -> None:
    """Neither is heard by a codec, unless it asks."""
    for flags, timeout, reason in (
        ([], 4.0, None),
        (["--max-call-seconds", "4"], float(PATIENCE), "CALL_TOO_LONG"),
    ):
        server = start_server(start, tmp_path, *flags)
        with server.channel() as channel:
            requests = encode(128 * MIB, "klt")
            begin = time.monotonic()
            with pytest.raises(grpc.RpcError) as caught:
                list(CompressionServiceStub(channel).Compress(requests, timeout=timeout))
            assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            assert time.monotonic() < begin + 4 + SOON
            if reason is not None:
                assert details(caught.value)[0].reason == reason
            assert assert_free(server) < SOON
        server.send_and_wait()


def test_long_encodes_of_one_client_do_not_hold_up_another(start: Start, tmp_path: Path) -> None:
    """There are as many as to keep every thread for a long time."""
    server = start_server(start, tmp_path)
    size = 32 * MIB
    requests = list(encode(size, "klt"))
    with server.channel() as many, server.channel(server.addresses[1]) as few:
        stub = CompressionServiceStub(many)
        calls = [stub.Compress(iter(requests), timeout=3 * PATIENCE) for _ in range(MANY)]
        received = 'kvcompress_input_bytes_total{method="Compress"}'
        wait_until(lambda: metric(server, received) >= 4 * size)
        waits: list[float] = []
        while len(waits) < 10 and any(call.is_active() for call in calls):
            waits.append(seconds_of_a_small_call(few))
            assert waits[-1] < SOON
        print(f"{len(waits)} small calls meanwhile, the longest of {max(waits):.3f} s")
        for call in calls:
            call.cancel()
        assert assert_free(server) < SOON
