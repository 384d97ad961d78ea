# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Clients that never read their socket: what their calls hold comes back, and others are served.

gRPC 1.51 keeps a write until the socket takes it, also when its call was cut off. What ends it is
the server's own look at the socket.
"""

import json
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest
from calls import metric
from health import SERVING
from process_memory import peak
from server_process import BINARY, PATIENCE, ServerProcess, Start
from test_floods import DATA, INITIAL_WINDOW_SIZE, WINDOW_UPDATE, block
from test_half_open_calls import opening
from test_hostile_http2 import END_HEADERS, HEADERS, MIB, PREFACE, SETTINGS, frame

import kvcompress
from kvcompress.v1 import compression_service_pb2 as pb

SAMPLE = Path(__file__).parents[1] / "data" / "smollm2_kjv_96_bf16.safetensors"
# The server lets go of a client five seconds after the time for a stall. Less than the 20 seconds
# after which Linux itself may give up a TCP connection.
STALL = 1
MOST_SECONDS = 15.0
STREAMS = 4
CHECKS = 2048
INFLIGHT = "kvcompress_inflight_bytes"
CONNECTIONS = "kvcompress_connections"
UNREAD = "kvcompress_connections_unread_total"
KINDS = ["tcp", "unix"]


@pytest.fixture(scope="module")
def artefact(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Some KiB that restore to 32 MiB: more than sockets take."""
    folder = tmp_path_factory.mktemp("zeros")
    size = 32 * MIB
    shape = [1, 8, size // 2048, 128]
    entry = {"dtype": "BF16", "shape": shape, "data_offsets": [0, size]}
    text = json.dumps({"layer_0_key": entry}).encode()
    with (folder / "cache").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + size)
    client = BINARY.with_name("kv-compress")
    files = ["-input", str(folder / "cache"), "-output", str(folder / "artefact")]
    codec = ["-codec", "ecsq", "-last-stage", "zstd"]
    subprocess.run([client, *files, *codec], check=True, capture_output=True)
    return (folder / "artefact").read_bytes()


def server_of(start: Start, kind: str, folder: Path) -> ServerProcess:
    """A server on a Unix socket, or on a port."""
    listen = ["--listen", f"unix:{folder}/kv.sock"] if kind == "unix" else []
    return start(
        *("--stall-seconds", str(STALL)), *("--memory-budget-bytes", str(64 * MIB)), *listen
    )


def connect(server: ServerProcess) -> socket.socket:
    """A connection that takes calls with large windows and that nobody reads."""
    address = server.addresses[0]
    if address.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE)
        connection.connect(address.removeprefix("unix:"))
    else:
        host, port = address.rsplit(":", 1)
        connection = socket.socket()
        connection.settimeout(PATIENCE)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((host, int(port)))
    windows = struct.pack(">HI", INITIAL_WINDOW_SIZE, 1 << 28)
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0, windows))
    connection.sendall(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 28)))
    return connection


def message(stream: int, content: bytes) -> bytes:
    """A message of gRPC in frames of HTTP/2."""
    whole = b"\0" + struct.pack(">I", len(content)) + content
    pieces = (whole[begin : begin + 16384] for begin in range(0, len(whole), 16384))
    return b"".join(frame(DATA, 0, stream, piece) for piece in pieces)


def wait_for(server: ServerProcess, series: str, value: float) -> float:
    """Waits until a series has a value, and health says the truth meanwhile; the seconds."""
    begin = time.monotonic()
    while metric(server, series) != value:
        assert time.monotonic() - begin < MOST_SECONDS, series
        assert server.get("/healthz")[0] == 200
        time.sleep(0.05)
    return time.monotonic() - begin


def restore(connection: socket.socket, stream: int, artefact: bytes) -> None:
    """Begins a call of Decompress."""
    connection.sendall(frame(HEADERS, END_HEADERS, stream, block("Decompress")))
    for request in (
        pb.DecompressRequest(options=pb.DecompressOptions()),
        pb.DecompressRequest(artefact=artefact),
    ):
        connection.sendall(message(stream, request.SerializeToString()))


def check_service(server: ServerProcess) -> None:
    """Asks whether others are served."""
    assert server.check() == SERVING
    with kvcompress.Client(server.addresses[0], timeout=PATIENCE) as client:
        assert client.measure(SAMPLE).tensor_count == 60


@pytest.mark.parametrize("kind", KINDS)
def test_restored_caches(start: Start, tmp_path: Path, artefact: bytes, kind: str) -> None:
    """Several streams of one client: what they reserve is free again while it holds its socket."""
    server = server_of(start, kind, tmp_path)
    with connect(server) as connection:
        for stream in range(1, 2 * STREAMS, 2):
            restore(connection, stream, artefact)
        while metric(server, INFLIGHT) < MIB:
            time.sleep(0.02)
        check_service(server)
        seconds = wait_for(server, INFLIGHT, 0)
        print(f"{kind}: all given back after {seconds:.1f} s")
        check_service(server)
    assert metric(server, UNREAD) == 1
    server.wait_log("reset a connection whose client read nothing for 6s")
    series = 'kvcompress_errors_total{code="DEADLINE_EXCEEDED",method="Decompress"}'
    assert metric(server, series) == STREAMS
    assert server.send_and_wait()[0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_health_checks(start: Start, tmp_path: Path, kind: str) -> None:
    """Many answers that nobody reads: others get theirs, and the connection ends."""
    server = server_of(start, kind, tmp_path)
    before = peak(server.pid)
    with connect(server) as connection:
        for call in range(CHECKS):
            stream = 2 * call + 1
            connection.sendall(opening("/grpc.health.v1.Health/Check", stream))
            connection.sendall(message(stream, b""))
        assert server.check() == SERVING
        seconds = wait_for(server, UNREAD, 1)
        print(f"{kind}: ended after {seconds:.1f} s")
        assert server.check() == SERVING
        wait_for(server, CONNECTIONS, 0)
    assert peak(server.pid) - before < 64 * MIB
    assert server.send_and_wait()[0] == 0


def test_a_client_that_reads_slowly(start: Start, tmp_path: Path, artefact: bytes) -> None:
    """Keeps its connection, though its calls are cut off."""
    server = server_of(start, "tcp", tmp_path)
    with connect(server) as connection:
        restore(connection, 1, artefact)
        for _ in range(10):
            assert connection.recv(4096)
            time.sleep(1)
        assert metric(server, UNREAD) == 0
        assert connection.recv(4096)
    assert server.check() == SERVING
