# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Messages that become far larger than they are: eight MiB of empty messages, and the like.

They were parsed before anything was reserved, into up to ninety times their size, and a limit on
the address space ended the process.
"""

import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from calls import details
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from health import SERVING
from process_memory import peak
from raw_calls import (
    FILES,
    METHODS,
    SERVICE,
    SMALL,
    STREAMS,
    Method,
    call,
    error_of,
    field,
    filled,
    numbered,
)
from server_process import PATIENCE, ServerProcess, Start, wait_until

import kvcompress
from kvcompress.v1 import compression_service_pb2 as pb
from kvcompress.v1.tensor_pb2 import TensorChunk, TensorTable

MIB = 1 << 20
SAMPLE = Path(__file__).parents[1] / "data" / "smollm2_kjv_96_bf16.safetensors"
CALLS = 16
BUDGET = 64 * MIB
MOST = 300 * 10**6
ADDRESS_SPACE = 1300 * 10**6
REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
# Groups without fields, fields of no length, and a number, of field 15, which there is not.
UNKNOWN = [b"\x7b\x7c", b"\x7a\x00", b"\x78\x01", field(15, b"0123456789abcdef")]
NOT_UTF_8 = b"\xff\xfe"
NO_MESSAGE = b"\xff"
OPTIONS = field(1, b"")
TABLES = [
    filled(field(1, b"")),  # specs without anything
    numbered(1, 1),  # each with a name of its own
    filled(field(2, b"")),  # entries of metadata
    filled(b"\x0a\x02\x18\x01"),  # a dimension each
    field(1, field(3, filled(b"\x01"))),  # all dimensions of one tensor
]
COMPRESS_OPTIONS = [
    filled(field(14, b"")),  # layers of attention
    field(14, field(2, filled(b"\0\0\0\0"))),  # of one layer, all values
    filled(b"\x72\x05\x15\0\0\0\0"),  # of many layers, a value each, not packed
    filled(field(7, b"")),  # labels
    filled(field(4, b"")),  # thresholds, one after the other
    filled(field(15, b"")),  # patterns of keys
    filled(field(16, b"*")),  # patterns of values
    field(17, filled(field(1, b""))),  # rotary embeddings
    field(17, filled(field(1, b"\x2a\x02\x0a\0"))),  # with a scaling each
    field(17, field(2, filled(b"\0"))),  # layers of rotary embeddings
    field(17, filled(b"\x10\0")),  # the same, not packed
]
DECOMPRESS_OPTIONS = [filled(field(3, b"")), filled(field(1, b"")), numbered(3, 1)]


def attacks(method: Method) -> Iterator[list[bytes]]:
    """The messages of a call, one after the other."""
    name = method.path.rsplit("/", 1)[1]
    if name in ("Compress", "Measure"):
        yield from ([OPTIONS, field(3, table)] for table in TABLES)
        yield from ([field(1, options)] for options in COMPRESS_OPTIONS)
        yield from ([OPTIONS, filled(piece)] for piece in UNKNOWN)
    elif name == "Decompress":
        yield from ([field(1, options)] for options in DECOMPRESS_OPTIONS)
        yield from ([filled(piece)] for piece in UNKNOWN)
    else:
        options = COMPRESS_OPTIONS if name == "CompressFile" else DECOMPRESS_OPTIONS
        yield from ([field(1, each)] for each in options)
        yield from ([filled(piece)] for piece in UNKNOWN)


def attack(
    server: ServerProcess,
    method: Method,
    messages: list[bytes],
    compression: grpc.Compression | None = None,
) -> set[grpc.StatusCode]:
    """The statuses of sixteen calls at a time, each on a connection of its own."""

    def one(_: int) -> grpc.StatusCode:
        with server.channel(server.addresses[method in FILES]) as channel:
            error = error_of(channel, method, messages, 3 * PATIENCE, compression)
        code: grpc.StatusCode = error.code()
        return code

    with ThreadPoolExecutor(CALLS) as threads:
        return set(threads.map(one, range(CALLS)))


def compressed(client: kvcompress.Client) -> bytes | None:
    """The sample's artefact; None while there is no memory for the call."""
    try:
        return client.compress(SAMPLE).artefact
    except kvcompress.ResourceExhaustedError:
        return None


def serves(server: ServerProcess) -> None:
    """There and back, and healthy.

    gRPC itself refuses compressed messages, so that the server hears of the end of such a call
    after the client, and releases its memory then.
    """
    with kvcompress.Client(server.addresses[0], timeout=PATIENCE) as client:
        wait_until(lambda: compressed(client) is not None, "a call is served")
        artefact = compressed(client)
        assert artefact is not None
        assert client.decompress(artefact).safetensors
    assert server.check() == SERVING


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    """Of a server that listens on TCP and on a Unix socket, where it shares a directory."""
    shared = tmp_path / "shared"
    shared.mkdir()
    listen = ["--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/socket"]
    budget = ["--memory-budget-bytes", str(BUDGET)]
    return [*listen, *budget, "--shared-directory", str(shared)]


@pytest.mark.parametrize("method", [*STREAMS, *FILES], ids=lambda each: each.path[-14:])
def test_sixteen_calls_of_messages_that_grow(
    start: Start, flags: list[str], method: Method
) -> None:
    """The server stays small, refuses each with a reason, and serves the next."""
    server = start(*flags)
    for messages in attacks(method):
        assert attack(server, method, messages) <= REFUSALS
        assert peak(server.pid) < MOST, messages[-1][:16]
    for messages in attacks(method):
        codes = attack(server, method, messages, grpc.Compression.Gzip)
        assert codes == {grpc.StatusCode.UNIMPLEMENTED}
    assert peak(server.pid) < MOST
    print(f"{method.path}: at most {peak(server.pid) / 1e6:.0f} MB")
    serves(server)


@pytest.mark.parametrize("method", [*STREAMS, *FILES], ids=lambda each: each.path[-14:])
def test_it_lives_within_an_address_space(start: Start, flags: list[str], method: Method) -> None:
    """std::bad_alloc anywhere would end it."""
    server = start(*flags, limits={resource.RLIMIT_AS: ADDRESS_SPACE})
    for messages in attacks(method):
        assert attack(server, method, messages) <= REFUSALS
    serves(server)


@pytest.mark.parametrize("method", SMALL, ids=lambda each: each.path[-24:])
def test_small_methods_take_small_messages(start: Start, method: Method) -> None:
    """Eight MiB of what they do not know is refused before it is parsed."""
    server = start()
    with server.channel() as channel:
        for piece in UNKNOWN:
            error = error_of(channel, method, [filled(piece)], PATIENCE)
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
            assert details(error)[0].metadata["limit"] == str(64 << 10)
    assert peak(server.pid) < 150 * MIB
    serves(server)


def test_limits_are_announced_and_named(start: Start) -> None:
    """One more than a server takes is refused with the number in the error."""
    server = start()
    with kvcompress.Client(server.addresses[0], timeout=PATIENCE) as client:
        limits = client.server_info().limits
    assert limits.max_tensors == 131_072
    for reason, most, message in (
        ("TOO_MANY_TENSORS", limits.max_tensors, field(3, filled(field(1, b""), 300_000))),
        ("TOO_MUCH_METADATA", limits.max_metadata_entries, field(3, filled(field(2, b""), 9000))),
        ("INVALID_ATTENTION", limits.max_attention_layers, field(1, filled(field(14, b""), 9000))),
        ("INVALID_LABEL", limits.max_labels, field(1, filled(field(7, b""), 80))),
        ("INVALID_OPTIONS", limits.max_patterns, field(1, filled(field(15, b""), 4096))),
        ("INVALID_OPTIONS", limits.max_patterns, field(1, filled(field(16, b""), 4096))),
        ("INVALID_OPTIONS", 16, field(1, field(17, filled(field(1, b""), 34)))),
        ("INVALID_OPTIONS", 65_536, field(1, field(17, field(2, bytes(65_537))))),
        ("RANK_TOO_LARGE", 32 * limits.max_tensors, field(3, field(1, field(3, bytes(5 * MIB))))),
    ):
        with server.channel() as channel:
            error = error_of(channel, STREAMS[0], [message], PATIENCE)
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        info = details(error)[0]
        assert (info.reason, info.metadata["limit"]) == (reason, str(most))


def test_a_large_honest_table_is_taken(start: Start) -> None:
    """Twenty thousand tensors, under the budget that a server has by itself."""
    server = start()
    table = TensorTable()
    for index in range(20_000):
        table.tensors.add(name=f"layers.{index}.key", dtype="DATA_TYPE_F32", shape=[1])

    messages = [
        pb.CompressRequest(options=pb.CompressOptions(codec="int4")),
        pb.CompressRequest(tensors=table),
        *(pb.CompressRequest(tensor_data=TensorChunk(data=bytes(4))) for _ in table.tensors),
    ]
    with server.channel() as channel:
        requests = [message.SerializeToString() for message in messages]
        (last,) = call(channel, STREAMS[2], requests, 3 * PATIENCE)
    assert pb.MeasureResponse.FromString(last).report.tensor_count == 20_000


def request_of(method: Method) -> Descriptor | None:
    """The message that a method of the service takes; None of other services."""
    service = pb.DESCRIPTOR.services_by_name["CompressionService"]
    found = service.methods_by_name.get(method.path.rsplit("/", 1)[1])
    return found.input_type if found and method.path.startswith(SERVICE) else None


def damaged_text(message: Descriptor | None) -> bytes:
    """A message whose first text is not UTF-8; what is no message, where it has no text."""
    if message is None:
        return field(1, NOT_UTF_8)
    for each in message.fields:
        if each.type == FieldDescriptor.TYPE_STRING:
            return field(each.number, NOT_UTF_8)
    for each in message.fields:
        if each.message_type and (inner := damaged_text(each.message_type)) != NO_MESSAGE:
            return field(each.number, inner)
    return NO_MESSAGE


@pytest.mark.parametrize("method", METHODS, ids=lambda each: each.path[-24:])
def test_text_that_is_not_utf_8(start: Start, tmp_path: Path, method: Method) -> None:
    """A clean error, and one line of log at most, which is JSON: see server_process."""
    (tmp_path / "shared").mkdir()
    server = start(
        *("--listen", f"unix:{tmp_path}/socket"), "--shared-directory", f"{tmp_path}/shared"
    )
    message = damaged_text(request_of(method))
    before = len(server.lines)
    with server.channel() as channel:
        error = error_of(channel, method, [message], PATIENCE)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    assert server.check() == SERVING
    assert len(server.lines) <= before + 1, server.lines[before:]
