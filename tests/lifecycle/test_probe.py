# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kv-compressd --probe, the health check of containers and units."""

import signal
import subprocess
from pathlib import Path

import pytest
from server_process import Start, run
from streams import CompressStream


def test_serving_over_tcp(start: Start) -> None:
    server = start("--metrics-listen", "")
    result = run("--probe", "--listen", server.addresses[0], "--metrics-listen", "")
    assert (result.returncode, result.stdout, result.stderr) == (0, "SERVING\n", "")


def test_any_address_is_asked_on_loopback(start: Start) -> None:
    server = start("--listen", "0.0.0.0:0", "--insecure")
    port = server.addresses[0].rsplit(":", 1)[1]
    variables = {"KVCOMPRESS_LISTEN": f"0.0.0.0:{port}", "KVCOMPRESS_INSECURE": "true"}
    assert run("--probe", **variables).returncode == 0


def test_unix_socket_comes_first(start: Start, tmp_path: Path) -> None:
    path = f"unix:{tmp_path}/kv.sock"
    start("--listen", path)
    assert run("--probe", "--listen", f"127.0.0.1:1,{path}").returncode == 0


@pytest.mark.parametrize("folder", ["with space", "a%20b", "h#h", "q?q"])
def test_a_socket_whatever_its_path(start: Start, tmp_path: Path, folder: str) -> None:
    """It is none of a URI."""
    (tmp_path / folder).mkdir()
    address = f"unix:{tmp_path / folder}/s"
    start("--listen", address)
    assert run("--probe", "--listen", address).returncode == 0


def test_proxies_are_not_asked(start: Start) -> None:
    """Docker puts those of the company into containers, and the image has a health check."""
    server = start("--listen", "0.0.0.0:0", "--insecure")
    port = server.addresses[0].rsplit(":", 1)[1]
    proxies = dict.fromkeys(
        ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY"),
        "http://127.0.0.1:9",
    )
    result = run("--probe", "--listen", f"0.0.0.0:{port}", "--insecure", **proxies)
    assert (result.returncode, result.stderr) == (0, "")


def test_healthz_where_there_is_tls(start: Start) -> None:
    """The probe has no certificate, and the files need not be readable for it."""
    server = start()
    address = server.http.removeprefix("http://")
    flags = ["--probe", "--tls-cert", "cert", "--tls-key", "key"]
    assert run(*flags, "--metrics-listen", address).returncode == 0
    result = run(*flags, "--metrics-listen", "")
    assert result.returncode == 1
    assert "needs a Unix socket or a metrics address" in result.stderr


@pytest.mark.parametrize("tls", [False, True])
def test_nobody_answers(tls: bool) -> None:
    flags = ["--tls-cert", "cert", "--tls-key", "key"] if tls else []
    result = run("--probe", "--listen", "127.0.0.1:1", "--metrics-listen", "127.0.0.1:1", *flags)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("kv-compressd: 127.0.0.1:1: ")
    assert len(result.stderr.splitlines()) == 1


def test_port_that_the_system_chose() -> None:
    result = run("--probe", "--listen", "127.0.0.1:0")
    assert result.returncode == 1
    assert "cannot know the port" in result.stderr


@pytest.mark.parametrize("tls", [False, True])
def test_not_serving_while_it_drains(start: Start, tls: bool) -> None:
    server = start("--drain-delay-seconds", "20")
    flags = ["--tls-cert", "cert", "--tls-key", "key"] if tls else []
    flags += ["--listen", server.addresses[0]]
    flags += ["--metrics-listen", server.http.removeprefix("http://")]
    with server.channel() as channel:
        stream = CompressStream(channel)
        server.send(signal.SIGTERM)
        server.wait_log("NOT_SERVING; draining")
        result: subprocess.CompletedProcess[str] = run("--probe", *flags)
        assert result.returncode == 1
        assert ("503" if tls else "NOT_SERVING") in result.stderr
        stream.finish()
    server.send(signal.SIGTERM)
    assert server.wait() == 0
