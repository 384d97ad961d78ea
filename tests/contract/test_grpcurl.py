# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What somebody with grpcurl and no stubs can do, by server reflection alone."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvcompress.v1 import compression_service_pb2
from oracle.fixtures import SAMPLE
from oracle.server import Server

SERVICE = "kvcompress.v1.CompressionService"
METHODS = sorted(
    compression_service_pb2.DESCRIPTOR.services_by_name["CompressionService"].methods_by_name
)

Grpcurl = Callable[..., str]


@pytest.fixture
def grpcurl(server: Server) -> Grpcurl:
    """Runs grpcurl against the server; `message` is the JSON to send."""
    found = os.environ.get("KVCOMPRESS_GRPCURL") or shutil.which("grpcurl")
    if not found:
        pytest.skip("grpcurl is not installed")
    binary = found

    def run(*arguments: str, message: str | None = None) -> str:
        command = [binary, "-plaintext", "-max-time", "60"]
        if message is not None:
            command += ["-d", "@"]
        done = subprocess.run(
            [*command, server.target, *arguments],
            input=message,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def answers(text: str) -> list[dict[str, Any]]:
    """The JSON messages that grpcurl printed, one after the other."""
    decoder, found, position = json.JSONDecoder(), [], 0
    while text[position:].strip():
        position += len(text[position:]) - len(text[position:].lstrip())
        message, position = decoder.raw_decode(text, position)
        found.append(message)
    return found


def test_lists_the_services(grpcurl: Grpcurl) -> None:
    """Ours, health and reflection."""
    services = grpcurl("list").split()
    assert {SERVICE, "grpc.health.v1.Health"} <= set(services)
    assert any(name.startswith("grpc.reflection.") for name in services)


def test_lists_the_methods(grpcurl: Grpcurl) -> None:
    """All seven."""
    assert grpcurl("list", SERVICE).split() == [f"{SERVICE}.{method}" for method in METHODS]


@pytest.mark.parametrize(
    ("symbol", "words"),
    [
        (SERVICE, "rpc Compress ( stream .kvcompress.v1.CompressRequest )"),
        (f"{SERVICE}.Decompress", "stream .kvcompress.v1.DecompressResponse"),
        ("kvcompress.v1.CompressOptions", "string codec = 1"),
        ("kvcompress.v1.CompressionReport", "double compression_ratio = 4"),
        ("kvcompress.v1.GetServerInfoResponse", "repeated .kvcompress.v1.CodecInfo codecs"),
        ("grpc.health.v1.Health", "rpc Check"),
        ("grpc.health.v1.HealthCheckResponse", "SERVING"),
    ],
)
def test_describes(grpcurl: Grpcurl, symbol: str, words: str) -> None:
    """Services and messages, health included."""
    assert words in grpcurl("describe", symbol)


@pytest.mark.parametrize("service", ["", SERVICE])
def test_health(grpcurl: Grpcurl, service: str) -> None:
    """The server as a whole, and the service by its full name."""
    request = json.dumps({"service": service})
    answer = json.loads(grpcurl("grpc.health.v1.Health/Check", message=request))
    assert answer == {"status": "SERVING"}


def test_server_info(grpcurl: Grpcurl) -> None:
    """Versions, limits and codecs."""
    answer = json.loads(grpcurl(f"{SERVICE}/GetServerInfo"))
    assert answer["api_version"] == "v1"
    assert answer["format_version"] == 1
    assert int(answer["limits"]["max_message_bytes"]) > 0
    assert "int4" in [codec["name"] for codec in answer["codecs"]]


def test_self_test(grpcurl: Grpcurl) -> None:
    """Every codec passes."""
    answer = json.loads(grpcurl(f"{SERVICE}/SelfTest"))
    assert answer["passed"] is True
    assert all(result["passed"] for result in answer["results"])
    assert any(result["codec"].startswith("int4:") for result in answer["results"])


def test_compresses_the_sample(grpcurl: Grpcurl, bin_dir: Path, tmp_path: Path) -> None:
    """A stream of JSON produces the artefact that the command line produces."""
    data, chunk = SAMPLE.read_bytes(), 1 << 18
    messages: list[dict[str, Any]] = [{"options": {"codec": "int4:64"}}]
    for begin in range(0, len(data), chunk):
        text = base64.b64encode(data[begin : begin + chunk]).decode()
        messages.append({"safetensors": text})
    request = "\n".join(map(json.dumps, messages))
    received = answers(grpcurl(f"{SERVICE}/Compress", message=request))

    assert list(received[0]) == ["begin"]
    assert list(received[-1]) == ["trailer"]
    artefact = bytearray(int(received[-1]["trailer"]["compressed_size_bytes"]))
    covered = 0
    for message in received[1:-1]:
        part = base64.b64decode(message["artefact"]["data"])
        offset = int(message["artefact"].get("offset", 0))
        artefact[offset : offset + len(part)] = part
        covered += len(part)
    assert covered == len(artefact)

    output = tmp_path / "artefact"
    command = [str(bin_dir / "kv-compress"), "-input", str(SAMPLE), "-output", str(output)]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert bytes(artefact) == output.read_bytes()
    reported = json.loads(done.stdout)
    assert received[-1]["trailer"]["payload_digest"] == reported["payload_digest"]
