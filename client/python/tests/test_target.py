# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Addresses of servers; proxies that the environment names, and what is reached without them."""

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

import kvcompress
from fake import BlockingAio, artefact, begin, canned, compressed, fake_server
from kvcompress._target import parse_target

MakeClient = Callable[..., kvcompress.Client]
GOOD = [begin(4), artefact(4, b"body"), artefact(0, b"head"), compressed(8)]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_grpc_proxy", "no_proxy", "grpc_proxy", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "target",
    [
        "127.0.0.1:50051",
        "127.8.9.10:1",
        "localhost:50051",
        "LocalHost",
        "localhost.:1",
        "[::1]:50051",
        "[::ffff:127.0.0.1]:50051",
        "dns:///localhost:50051",
        "dns:localhost:50051",
        "dns://10.0.0.1/localhost:50051",
        "ipv4:127.0.0.1:1,127.0.0.2:1",
        "ipv6:[::1]:1",
        "ipv6:%5B::1%5D:1",
        "unix:/run/s",
        "unix:///run/s",
        "unix-abstract:s",
        "vsock:2:3",
    ],
)
def test_this_machine_is_reached_directly(target: str) -> None:
    assert parse_target(target).avoids_proxy()


@pytest.mark.parametrize(
    "target",
    ["10.0.0.1:1", "localhost.example.com:1", "128.0.0.1:1", "ipv4:127.0.0.1:1,10.0.0.1:1", "h:1"],
)
def test_other_machines_are_reached_as_the_environment_says(target: str) -> None:
    assert not parse_target(target).avoids_proxy()


@pytest.mark.parametrize(
    ("excluded", "target", "avoids"),
    [
        ("*", "far.example.com:1", True),
        ("far.example.com", "far.example.com:1", True),
        ("FAR.example.com", "dns:///far.EXAMPLE.com:1", True),
        ("example.com", "far.example.com:1", True),
        (".example.com", "far.example.com:1", True),
        ("example.com", "farexample.com:1", False),
        ("far.example.com", "example.com:1", False),
        (" a , 10.0.0.0/8 ,b", "10.20.30.40:1", True),
        ("10.0.0.0/8", "11.0.0.1:1", False),
        ("10.1.2.3", "10.1.2.3:1", True),
        ("10.1.2.3", "10.1.2.30:1", False),
        ("10.1.2.3/8", "10.9.9.9:1", True),
        ("fd00::/8", "[fd12::1]:50051", True),
        ("fd00::/8", "10.0.0.1:1", False),
        ("::ffff:10.1.2.3", "10.1.2.3:1", True),
        ("10.0.0.0/255.0.0.0", "10.0.0.1:1", False),
        ("10.0.0.0/40", "10.0.0.1:1", False),
        ("0.0.0.1", "10.0.0.1:1", False),
        ("", "10.0.0.1:1", False),
        (",.,", "h:1", False),
    ],
)
def test_what_no_proxy_has_is_reached_directly(
    monkeypatch: pytest.MonkeyPatch, excluded: str, target: str, avoids: bool
) -> None:
    monkeypatch.setenv("no_proxy", excluded)
    assert parse_target(target).avoids_proxy() == avoids
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("no_grpc_proxy", excluded)
    assert parse_target(target).avoids_proxy() == avoids


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("[::1]:99999", "1 to 65535"),
        ("127.0.0.1:65536", "1 to 65535"),
        ("dns:///localhost:0", "1 to 65535"),
        ("ipv4:127.0.0.1:1,127.0.0.1:x", "1 to 65535"),
        ("host:", "1 to 65535"),
        ("unix:", "no path"),
        ("unix://host/path", "expected unix:PATH"),
        ("unix:/a,b", "a comma"),
        (f"unix:/{'x' * 107}", "a path of 108 bytes.* 107"),
    ],
)
def test_addresses_that_would_become_others(
    make_client: MakeClient, target: str, words: str
) -> None:
    with pytest.raises(kvcompress.InvalidArgumentError, match=words) as caught:
        make_client(target)
    assert caught.value.reason == "INVALID_ADDRESS"


@pytest.mark.parametrize("name", ["plain", "a b", "100%", "a%20b", "hash#", "quest?ion", "ü"])
def test_socket_with_any_name(make_client: MakeClient, name: str) -> None:
    """What gRPC would take for a part of a URI, too. The fake server has a link to its socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        plain = Path(folder, "s")
        server = grpc.server(ThreadPoolExecutor(1))
        assert server.add_insecure_port(f"unix:{plain}")
        server.start()
        link = Path(folder, name)
        link.symlink_to(plain)
        try:
            for target in (f"unix:{link}", f"unix://{link}"):
                with (
                    make_client(target, timeout=20, attempts=1) as client,
                    pytest.raises(kvcompress.UnimplementedError),
                ):
                    client.server_info()
        finally:
            server.stop(None).wait()


def test_server_on_loopback_beside_a_proxy_that_is_away(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("grpc_proxy", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with fake_server(canned(GOOD)) as target:
        port = target.rpartition(":")[2]
        for address in (target, f"localhost:{port}", f"dns:///localhost:{port}"):
            with make_client(address, timeout=20, attempts=1) as client:
                assert client.compress(b"").artefact == b"headbody"


def test_channel_option_of_the_caller_wins(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    options = [("grpc.enable_http_proxy", 1)]
    with (
        fake_server(canned(GOOD)) as target,
        make_client(target, timeout=20, attempts=1, options=options) as client,
        pytest.raises(kvcompress.UnavailableError),
    ):
        client.compress(b"")


@pytest.fixture(params=[kvcompress.Client, BlockingAio])
def make_client(request: pytest.FixtureRequest) -> MakeClient:
    """The class of either client."""
    kind: MakeClient = request.param
    return kind
