# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""TLS and mutual TLS, through grpcurl, the command line and the Python client."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from authority import Authority, Pair
from health import SERVING
from server_process import BINARY, PATIENCE, ServerProcess, Start

import kvcompress

SAMPLE = Path(__file__).parents[1] / "data" / "smollm2_kjv_96_bf16.safetensors"


def command_line(server: ServerProcess, *flags: object) -> subprocess.CompletedProcess[str]:
    """kv-compress, measuring the sample on a server."""
    arguments = ["-metrics-only", "-input", SAMPLE, "-server", server.addresses[0], *flags]
    command = [str(BINARY.parent / "kv-compress"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def trusting(authority: Authority, pair: Pair | None = None) -> list[object]:
    """Flags of kv-compress."""
    own = ["-tls-cert", pair.certificate, "-tls-key", pair.key] if pair else []
    return ["-tls-ca", authority.certificate, *own]


def python_client(
    server: ServerProcess, authority: Authority, pair: Pair | None = None
) -> kvcompress.Client:
    """The Python client, which does not try twice."""
    return kvcompress.Client(
        server.addresses[0],
        root_certificates=authority.certificate,
        private_key=pair.key if pair else None,
        certificate_chain=pair.certificate if pair else None,
        attempts=1,
        timeout=PATIENCE,
    )


def grpcurl(server: ServerProcess, *flags: object) -> subprocess.CompletedProcess[str]:
    """Lists the services with grpcurl."""
    binary = os.environ.get("KVCOMPRESS_GRPCURL") or shutil.which("grpcurl")
    if not binary:
        pytest.skip("grpcurl is not installed")
    command = [binary, "-max-time", str(PATIENCE), *map(str, flags), server.addresses[0], "list"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_tls(start: Start, authority: Authority) -> None:
    """Every client gets through, and no client that trusts another authority does."""
    server = start(*authority.sign("server").server_flags)
    assert "; TLS; " in server.messages[0]
    assert command_line(server, *trusting(authority)).returncode == 0
    with python_client(server, authority) as client:
        assert client.self_test().passed
    listed = grpcurl(server, "-cacert", authority.certificate)
    assert "kvcompress.v1.CompressionService" in listed.stdout.split()


def test_client_refuses_a_stranger(start: Start, authority: Authority, stranger: Authority) -> None:
    """A server that the client's authority has not signed gets no byte of a cache."""
    server = start(*authority.sign("server").server_flags)
    refused = command_line(server, *trusting(stranger))
    assert refused.returncode == 1
    assert f"server {server.addresses[0]}: " in refused.stderr
    with python_client(server, stranger) as client, pytest.raises(kvcompress.KVCompressError):
        client.server_info()


def test_plain_text_is_refused(start: Start, authority: Authority) -> None:
    """On loopback too, once there is TLS."""
    server = start(*authority.sign("server").server_flags)
    assert command_line(server).returncode == 1


def test_unix_socket_stays_plain(start: Start, authority: Authority, tmp_path: Path) -> None:
    """Whoever may open it is for its mode to say."""
    path = f"unix:{tmp_path}/kv.sock"
    flags = authority.sign("server").server_flags
    server = start("--listen", "127.0.0.1:0", "--listen", path, *flags)
    assert server.check(address=path) == SERVING


def test_mutual_tls(start: Start, authority: Authority, stranger: Authority) -> None:
    """Only clients with a certificate of the authority are served."""
    flags = authority.sign("server").server_flags
    server = start(*flags, "--tls-client-ca", str(authority.certificate))
    assert "; mutual TLS; " in server.messages[0]
    known, unknown = authority.sign("client"), stranger.sign("client")

    assert command_line(server, *trusting(authority, known)).returncode == 0
    assert command_line(server, *trusting(authority, unknown)).returncode == 1
    assert command_line(server, *trusting(authority)).returncode == 1

    with python_client(server, authority, known) as client:
        assert client.self_test().passed
    for pair in (unknown, None):
        failing = pytest.raises(kvcompress.KVCompressError)
        with python_client(server, authority, pair) as client, failing:
            client.server_info()

    ours = ["-cacert", authority.certificate]
    assert grpcurl(server, *ours, "-cert", known.certificate, "-key", known.key).returncode == 0
    assert grpcurl(server, *ours).returncode != 0


def test_flags_of_the_command_line_go_together(authority: Authority, start: Start) -> None:
    """And a file that is not there is named."""
    server = start(*authority.sign("server").server_flags)
    for flags, message in (
        (["-tls-cert", "x"], "-tls-cert and -tls-key go together"),
        (["-tls-cert", "x", "-tls-key", "y"], "-tls-cert needs -tls-ca"),
        (["-tls-ca", "/no/such/file"], "/no/such/file cannot be read"),
        (["-tls-ca", "x", "-server", ""], "-tls-ca needs -server"),
    ):
        refused = command_line(server, *flags)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert message in refused.stderr
