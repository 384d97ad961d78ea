# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Who can reach a server: no plain text for other machines, and the modes of sockets."""

import os
import stat
from pathlib import Path

import pytest
from authority import Authority
from health import SERVING
from server_process import Start, run


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "127.evil.example:0", "10.0.0.1:0"])
def test_plain_text_needs_insecure(address: str) -> None:
    """Where other machines can connect, or a name might mean anything."""
    result = run("--listen", address, "--metrics-listen", "")
    assert result.returncode == 1
    assert f"other machines can reach {address}" in result.stderr
    assert "--insecure" in result.stderr


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.1.2.3:0", "localhost:0"])
def test_loopback_needs_nothing(start: Start, address: str) -> None:
    """Plain text that does not leave the machine."""
    assert start("--listen", address).check() == SERVING


def test_insecure(start: Start) -> None:
    """It is served, and warned of."""
    for server in (
        start("--listen", "0.0.0.0:0", "--insecure"),
        start("--listen", "0.0.0.0:0", KVCOMPRESS_INSECURE="true"),
    ):
        assert server.check(address=server.addresses[0].replace("0.0.0.0", "127.0.0.1")) == SERVING
        server.wait_log("neither encrypted nor authenticated")


def test_tls_needs_no_insecure(start: Start, authority: Authority) -> None:
    """And no warning."""
    server = start("--listen", "0.0.0.0:0", *authority.sign("server").server_flags)
    assert not any("neither encrypted" in message for message in server.messages)


@pytest.mark.parametrize("mode", ["0600", "660", "0777"])
def test_unix_socket_mode(start: Start, tmp_path: Path, mode: str) -> None:
    """Exactly as given, whatever the umask."""
    path = tmp_path / "kv.sock"
    before = os.umask(0o077)
    try:
        server = start("--listen", f"unix:{path}", "--unix-socket-mode", mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == int(mode, 8)
    assert server.check() == SERVING


@pytest.mark.parametrize("mode", ["", "rw", "0888", "1777"])
def test_bad_mode(mode: str) -> None:
    """Is refused."""
    assert run("--unix-socket-mode", mode, "--check-config").returncode == 1
