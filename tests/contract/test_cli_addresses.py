# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The addresses of servers that kv-compress takes: odd sockets, wrong ports, proxies."""

from pathlib import Path

import pytest
from kv_compress import Run, refuse, succeed

from oracle.fixtures import SAMPLE
from oracle.server import Server, running_server

# Nothing listens there.
NO_PROXY = "http://127.0.0.1:9"


@pytest.mark.parametrize("folder", ["with space", "a%20b", "100%", "h#h", "q?q", "c:c", "ü\n"])
def test_sockets_with_characters_that_mean_something_in_uris(
    run: Run, bin_dir: Path, tmp_path: Path, folder: str
) -> None:
    """The server makes such a socket, and it is the one that is asked."""
    (tmp_path / folder).mkdir()
    address = f"unix:{tmp_path / folder}/s"
    with running_server(bin_dir, "--listen", address):
        succeed(run("-server", address, "-input", SAMPLE, "-metrics-only"))


def test_sockets_that_cannot_be_reached_are_refused(run: Run) -> None:
    """With what is wrong, and what may be."""
    arguments = ["-input", SAMPLE, "-metrics-only", "-server"]
    refuse(run(*arguments, f"unix:/{'a' * 107}"), "108 bytes.*Unix socket may have 107")
    refuse(run(*arguments, "unix:/tmp/a,b"), "comma")
    refuse(run(*arguments, "unix://relative"), "expected unix:PATH")


@pytest.mark.parametrize("address", ["[::1]:99999", "127.0.0.1:65536", "localhost:0", "host:x"])
def test_ports_that_would_become_others_are_refused(run: Run, address: str) -> None:
    """Of 99999 gRPC makes 34463."""
    done = run("-server", address, "-input", SAMPLE, "-metrics-only")
    refuse(done, "has a port that is not a number from 1 to 65535")


def test_a_proxy_is_not_asked_for_this_machine(run: Run, server: Server) -> None:
    """Whatever no_proxy says."""
    port = server.target.rsplit(":", 1)[1]
    proxies = {"http_proxy": NO_PROXY, "https_proxy": NO_PROXY, "no_proxy": ""}
    for address in (server.target, f"localhost:{port}", server.unix_target):
        succeed(run("-server", address, "-input", SAMPLE, "-metrics-only", **proxies))


@pytest.mark.parametrize("no_proxy", ["0.0.0.0", "example.com, 0.0.0.0/8", "*"])
def test_no_proxy_is_understood(run: Run, server: Server, no_proxy: str) -> None:
    """0.0.0.0 is no loopback address by its number, and yet leads to this machine."""
    address = f"0.0.0.0:{server.target.rsplit(':', 1)[1]}"
    arguments = ["-server", address, "-input", SAMPLE, "-metrics-only"]
    proxies = {"http_proxy": NO_PROXY, "grpc_proxy": NO_PROXY}
    refuse(run(*arguments, no_proxy="10.0.0.0/8", **proxies), address)
    succeed(run(*arguments, no_proxy=no_proxy, **proxies))
