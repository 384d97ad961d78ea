# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Floods of HTTP/2 that cost a server more than its client; THREAT_MODEL.md has their names.

Each runs for two seconds while a client of another host is served. What is asserted: that client
gets right results, and is refused at worst; the server lives; and nothing is left when the flood
is over. Some floods grow the server for as long as they last, as gRPC 1.51 has no defence: those
have to give it all back, and THREAT_MODEL.md says who must not be let near.
"""

import contextlib
import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from calls import metric
from flood import Flood, many_streams
from health import SERVING
from http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    block,
    frame,
    frames_in,
    text,
)
from process_memory import peak, resident
from server_process import PATIENCE, Start

import kvcompress
from kvcompress.v1 import compression_service_pb2 as pb

SAMPLE = Path(__file__).parents[1] / "data" / "smollm2_kjv_96_bf16.safetensors"
INITIAL_WINDOW_SIZE = 4
MIB = 1 << 20
CANCEL = struct.pack(">I", 8)
# A server that is configured to hold 64 MiB of streams may grow by this much for good.
MOST_GROWTH = 192 * MIB


def headers(method: str = "Compress") -> bytes:
    """Those of a call."""
    return block(f"/kvcompress.v1.CompressionService/{method}")


def streams() -> Iterator[int]:
    """Identifiers of streams that a client may open."""
    return itertools.count(1, 2)


def rapid_reset() -> Iterator[bytes]:
    """CVE-2023-44487: streams that are opened and given up at once."""
    for stream in streams():
        yield frame(HEADERS, END_HEADERS, stream, headers()) + frame(RST_STREAM, 0, stream, CANCEL)


def opened_by_index() -> Iterator[bytes]:
    """Streams that are opened by 15 bytes each, and never ended."""
    return many_streams("Compress")


def reset_by_index() -> Iterator[bytes]:
    """The same, given up at once."""
    return many_streams("Compress", frame(RST_STREAM, 0, 0, CANCEL))


def ended_by_index() -> Iterator[bytes]:
    """Calls that are complete, and end without a request."""
    return many_streams("GetServerInfo", flags=END_HEADERS | END_STREAM)


def of_no_method() -> Iterator[bytes]:
    """Calls of a method that there is not."""
    return many_streams("Absent")


def without_a_path() -> Iterator[bytes]:
    """Streams that become no calls."""
    for first in itertools.count(1, 200):
        yield b"".join(
            frame(HEADERS, END_HEADERS, stream, b"\x83") for stream in range(first, first + 200, 2)
        )


def without_a_path_behind_data() -> Iterator[bytes]:
    """The same behind a megabyte of data, from which gRPC took it that it may read as much again.

    It read 100,000 streams before it got to the first of them: 2 GiB for 8 MiB that were sent.
    """
    yield frame(HEADERS, END_HEADERS, 1, headers())
    yield frame(DATA, 0, 1, b"\0" + struct.pack(">I", 4 * MIB) + bytes(15000))
    yield frame(DATA, 0, 1, bytes(16000)) * 50
    for first in itertools.count(3, 20000):
        yield b"".join(
            frame(HEADERS, END_HEADERS, stream, b"\x83")
            for stream in range(first, first + 20000, 2)
        )


def made_you_reset_by_window() -> Iterator[bytes]:
    """CVE-2025-8671: streams that the server has to reset, for a window that overflows."""
    for stream in streams():
        much = struct.pack(">I", 0x7FFFFFFF)
        yield (
            frame(HEADERS, END_HEADERS, stream, headers())
            + frame(WINDOW_UPDATE, 0, stream, much)
            + frame(WINDOW_UPDATE, 0, stream, much)
        )


def made_you_reset_by_zero() -> Iterator[bytes]:
    """The same, by a window that grows by nothing."""
    for stream in streams():
        yield frame(HEADERS, END_HEADERS, stream, headers()) + frame(
            WINDOW_UPDATE, 0, stream, bytes(4)
        )


def made_you_reset_by_data() -> Iterator[bytes]:
    """The same, by data after the end."""
    for stream in streams():
        yield frame(HEADERS, END_HEADERS | END_STREAM, stream, headers("GetServerInfo")) + frame(
            DATA, 0, stream, b"x"
        )


def made_you_reset_by_priority() -> Iterator[bytes]:
    """The same, by a priority of the wrong length."""
    for stream in streams():
        yield frame(HEADERS, END_HEADERS, stream, headers()) + frame(PRIORITY, 0, stream, b"xxx")


def continuations() -> Iterator[bytes]:
    """CVE-2024-27316 and its kin: headers that never end."""
    yield frame(HEADERS, 0, 1, headers())
    while True:
        yield frame(CONTINUATION, 0, 1, b"\0" + text(b"x") + text(bytes(16000)))


def empty_continuations() -> Iterator[bytes]:
    """The same, of frames without a byte."""
    yield frame(HEADERS, 0, 1, headers())
    while True:
        yield frame(CONTINUATION, 0, 1, b"") * 100


def hpack_bomb() -> Iterator[bytes]:
    """A header of 4,000 bytes that is put into the table once, and named thousands of times."""
    yield frame(HEADERS, END_HEADERS, 1, headers() + b"\x40" + text(b"bomb") + text(bytes(4000)))
    for stream in itertools.count(3, 2):
        yield frame(HEADERS, END_HEADERS, stream, headers() + b"\xbe" * 15000)


def long_integers() -> Iterator[bytes]:
    """CVE-2023-33953: integers with as much padding as one likes, and strings without an end."""
    for stream in streams():
        yield frame(HEADERS, 0, stream, b"\0\x7f" + b"\x80" * 16000)
        while True:
            yield frame(CONTINUATION, 0, stream, b"\x80" * 16000)


def pings() -> Iterator[bytes]:
    """CVE-2019-9512: pings, each of which wants an answer."""
    while True:
        yield frame(PING, 0, 0, bytes(8)) * 100


def settings() -> Iterator[bytes]:
    """CVE-2019-9515: settings, each of which wants an acknowledgement."""
    while True:
        yield frame(SETTINGS, 0, 0, b"") * 100


def empty_frames() -> Iterator[bytes]:
    """CVE-2019-9518: frames without a byte."""
    yield frame(HEADERS, END_HEADERS, 1, headers())
    while True:
        yield frame(DATA, 0, 1, b"") * 100


# These hold memory for each stream or frame for as long as gRPC takes to get to it.
GROWING = {
    continuations,
    pings,
}
FLOODS: list[Callable[[], Iterator[bytes]]] = [
    rapid_reset,
    opened_by_index,
    reset_by_index,
    ended_by_index,
    of_no_method,
    without_a_path,
    without_a_path_behind_data,
    made_you_reset_by_window,
    made_you_reset_by_zero,
    made_you_reset_by_data,
    made_you_reset_by_priority,
    continuations,
    empty_continuations,
    hpack_bomb,
    long_integers,
    pings,
    settings,
    empty_frames,
]


def test_a_window_that_shrank_was_breached_by_an_empty_frame(start: Start) -> None:
    """As gRPC 1.51 cannot take windows back, what would have it try is off.

    A stream that had gone well ended with PROTOCOL_ERROR when its window had shrunk below what
    was on the way: about one in three hundred under load. gRPC fits windows to the line by
    pings, which it sends when data come.
    """
    options = pb.CompressRequest(options=pb.CompressOptions(codec="int4")).SerializeToString()
    message = b"\0" + struct.pack(">I", len(options)) + options
    host, port = start().addresses[0].rsplit(":", 1)
    said = b""
    with socket.create_connection((host, int(port)), timeout=1) as connection:
        connection.sendall(
            PREFACE
            + frame(SETTINGS, 0, 0, b"")
            + frame(HEADERS, END_HEADERS, 1, headers())
            + frame(DATA, 0, 1, message)
            + frame(DATA, 0, 1, b"\0" + struct.pack(">I", MIB) + bytes(15_000))
        )
        with contextlib.suppress(TimeoutError):
            while piece := connection.recv(1 << 16):
                said += piece
    kinds = [each.kind for each in frames_in(said)]
    assert kinds[0] == SETTINGS
    assert WINDOW_UPDATE in kinds
    assert PING not in kinds
    settings_sent = next(frames_in(said)).payload
    windows = [
        value
        for key, value in struct.iter_unpack(">HI", settings_sent)
        if key == INITIAL_WINDOW_SIZE
    ]
    assert windows == [2 * MIB]


def test_nothing_turns_zero_copy_on() -> None:
    """CVE-2024-11407 is in sending without a copy, which gRPC does only if configured to."""
    server = Path(__file__).parents[2] / "server"
    sources = "".join(path.read_text() for path in server.rglob("*.[ch]*") if path.is_file())
    assert "AddChannelArgument" in sources
    assert "zerocopy" not in sources.lower()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("frames", FLOODS, ids=lambda frames: frames.__name__)
def test_others_are_served(start: Start, frames: Callable[[], Iterator[bytes]]) -> None:
    """While it rains, and after; the server takes longer over a flood than it took to send."""
    server = start("--memory-budget-bytes", str(64 * MIB))
    before, served, refused = resident(server.pid), 0, 0
    with kvcompress.Client(server.addresses[0], timeout=8 * PATIENCE) as client:
        right = client.compress(SAMPLE).artefact
        assert right
        flood = Flood(server, frames)
        while served == 0 or flood.lasts():
            try:
                assert client.compress(SAMPLE).artefact == right
            except kvcompress.ResourceExhaustedError:
                refused += 1
                time.sleep(0.1)
            else:
                served += 1
        flood.wait()
    grown = peak(server.pid) - before
    print(
        f"{frames.__name__}: {flood.sent / MIB:.0f} MiB in {flood.connections} connections; "
        f"{served} caches of another client compressed, {refused} refused; "
        f"{grown / MIB:.0f} MiB at most"
    )
    assert frames in GROWING or grown < MOST_GROWTH
    give_up = time.monotonic() + 8 * PATIENCE
    # Health looks twice before it says that the service can be reached again.
    while (
        metric(server, "kvcompress_inflight_bytes") > 0
        or resident(server.pid) - before > MOST_GROWTH
        or server.check() != SERVING
    ):
        assert time.monotonic() < give_up, resident(server.pid)
        time.sleep(0.05)
