# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Which client may call which method, by the names in its certificate."""

from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from authority import Authority, Pair
from health import SERVING, check
from server_process import PATIENCE, ServerProcess, Start, run

from kvcompress.v1 import compression_service_pb2 as pb
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub
from kvcompress.v1.server_info_pb2 import GetServerInfoRequest

Caller = Callable[[CompressionServiceStub], object]


def compress(stub: CompressionServiceStub) -> object:
    """A stream that ends too early, as those of the other methods do."""
    return list(stub.Compress(iter([pb.CompressRequest(options=pb.CompressOptions(codec="int4"))])))


CALLS: dict[str, Caller] = {
    "Compress": compress,
    "Decompress": lambda stub: list(
        stub.Decompress(iter([pb.DecompressRequest(options=pb.DecompressOptions())]))
    ),
    "Measure": lambda stub: stub.Measure(
        iter([pb.MeasureRequest(options=pb.CompressOptions(codec="int4"))])
    ),
    "GetServerInfo": lambda stub: stub.GetServerInfo(GetServerInfoRequest()),
    "SelfTest": lambda stub: stub.SelfTest(pb.SelfTestRequest(codec="int4")),
}


def channel_of(server: ServerProcess, authority: Authority, pair: Pair) -> grpc.Channel:
    """A channel that shows a certificate."""
    credentials = grpc.ssl_channel_credentials(
        authority.certificate.read_bytes(), pair.key.read_bytes(), pair.certificate.read_bytes()
    )
    return grpc.secure_channel(server.addresses[0], credentials)


def allowed(channel: grpc.Channel) -> set[str]:
    """The methods that this client is let in to; the others are refused, and say so."""
    stub = CompressionServiceStub(channel)
    return {method for method, call in CALLS.items() if lets_in(stub, method, call)}


def lets_in(stub: CompressionServiceStub, method: str, call: Caller) -> bool:
    """Whether a call is let in; it may fail then for other reasons."""
    failure = None
    try:
        call(stub)
    except grpc.RpcError as error:
        failure = error
    if failure is None or failure.code() != grpc.StatusCode.PERMISSION_DENIED:
        return True
    assert failure.details() == f"this client may not call {method}"
    return False


@pytest.fixture
def flags(authority: Authority) -> list[str]:
    """Of a server with mutual TLS."""
    pair = authority.sign("server")
    return [*pair.server_flags, "--tls-client-ca", str(authority.certificate)]


def test_methods_by_identity(start: Start, authority: Authority, flags: list[str]) -> None:
    """Names of hosts, URIs, beginnings of them; what no rule names is refused."""
    server = start(
        *(*flags, "--allow", "Compress+Measure=engine.example,Decompress=spiffe://kv/reader/*"),
        *("--allow", "*=admin.example", "--allow", "GetServerInfo=*"),
        *("--allow", "SelfTest=10.0.0.7"),
    )
    everything = set(CALLS)
    expected = {
        "DNS:engine.example": {"Compress", "Measure", "GetServerInfo"},
        "DNS:other.example,DNS:engine.example": {"Compress", "Measure", "GetServerInfo"},
        "URI:spiffe://kv/reader/7": {"Decompress", "GetServerInfo"},
        "URI:spiffe://kv/reader": {"GetServerInfo"},
        "DNS:admin.example": everything,
        "DNS:admin.example.evil.example": {"GetServerInfo"},
        "URI:https://admin.example": {"GetServerInfo"},
        "email:admin.example": {"GetServerInfo"},
        "email:admin@example,RID:1.2.3.4,otherName:1.2.3.4;UTF8:admin.example": {"GetServerInfo"},
        "email:admin.example,DNS:engine.example": {"Compress", "Measure", "GetServerInfo"},
        "IP:10.0.0.7": {"SelfTest", "GetServerInfo"},
        "email:10.0.0.7": {"GetServerInfo"},
        "DNS:10.0.0.70": {"GetServerInfo"},
        "": {"GetServerInfo"},
    }
    for number, (names, methods) in enumerate(expected.items()):
        pair = authority.sign(f"client{number}", names=names)
        with channel_of(server, authority, pair) as channel:
            assert allowed(channel) == methods, names
            assert check(channel, "", PATIENCE) == SERVING


def test_the_subject_is_no_identity(start: Start, authority: Authority, flags: list[str]) -> None:
    """A common name that says admin lets nobody in."""
    server = start(*flags, "--allow", "*=admin.example")
    with channel_of(server, authority, authority.sign("admin.example", names="")) as channel:
        assert allowed(channel) == set()


def test_who_is_refused_is_counted_and_logged(
    start: Start, authority: Authority, flags: list[str]
) -> None:
    """With the method, and without the name of the client."""
    server = start(*flags, "--allow", "Compress=somebody.example")
    pair = authority.sign("client", names="DNS:secret-name.example")
    with channel_of(server, authority, pair) as channel:
        allowed(channel)
    server.wait_log("Measure ended with PERMISSION_DENIED, METHOD_NOT_ALLOWED")
    assert not any("secret-name" in message for message in server.messages)
    page = server.get("/metrics")[2]
    assert 'kvcompress_errors_total{code="PERMISSION_DENIED",method="SelfTest"} 1' in page


def test_unix_sockets_are_an_identity(
    start: Start, authority: Authority, flags: list[str], tmp_path: Path
) -> None:
    """Only where a rule says so, and no certificate takes its place."""
    path = f"unix:{tmp_path}/kv.sock"
    listen = ["--listen", "127.0.0.1:0", "--listen", path]
    closed = start(*listen, *flags, "--allow", "*=admin.example")
    with closed.channel(path) as channel:
        assert allowed(channel) == set()
    closed.kill()
    server = start(*listen, *flags, "--allow", "Compress=unix")
    with server.channel(path) as channel:
        assert allowed(channel) == {"Compress"}
    pair = authority.sign("client", names="DNS:unix")
    with channel_of(server, authority, pair) as channel:
        assert allowed(channel) == set()


def test_bad_rules_do_not_start(flags: list[str]) -> None:
    """And neither do rules for clients that nobody asks for a certificate."""
    for rule in ("Compress", "Nothing=a", "Compress=", "Compress=a*b"):
        result = run(*flags, "--allow", rule, "--check-config")
        assert result.returncode == 1
        assert "is not METHODS=IDENTITY" in result.stderr
    result = run("--allow", "Compress=a", "--check-config")
    assert "--allow needs --tls-client-ca" in result.stderr
