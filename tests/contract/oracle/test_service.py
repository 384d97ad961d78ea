# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the server says of itself, and that it keeps the streams' rules."""

import re

import grpc
import pytest
from grpc_health.v1 import health_pb2

from kvcompress import Client, InvalidArgumentError, UnavailableError
from kvcompress.errors import from_rpc_error
from kvcompress.v1 import compression_service_pb2 as service_pb2
from kvcompress.v1 import tensor_pb2
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub
from oracle import caches
from oracle.fixtures import REPOSITORY
from oracle.server import Server, free_port, health
from oracle.source import ITEM_SIZE, NUMBERS

OPTIONS = service_pb2.CompressRequest(options=service_pb2.CompressOptions(codec="int4"))
FILE = service_pb2.CompressRequest(safetensors=caches.tiny())
TABLE = service_pb2.CompressRequest(
    tensors=tensor_pb2.TensorTable(
        tensors=[tensor_pb2.TensorSpec(name="x", dtype=tensor_pb2.DATA_TYPE_F32, shape=[2])]
    )
)


def data(name: str, content: bytes) -> service_pb2.CompressRequest:
    """Makes a chunk of a tensor."""
    return service_pb2.CompressRequest(tensor_data=tensor_pb2.TensorChunk(name=name, data=content))


def test_server_info(client: Client) -> None:
    info = client.server_info()
    assert (info.version, info.api_version) == ("0.1.0", "v1")
    assert (info.format_version, info.min_format_version) == (1, 1)
    assert info.kernels
    assert info.limits.max_rank == 32
    assert info.limits.max_labels == 32
    assert 0 < info.limits.recommended_chunk_bytes <= info.limits.max_message_bytes
    assert 0 < info.limits.max_header_bytes <= 100_000_000
    assert info.limits.max_stream_memory_bytes > 0
    codecs = {codec.name: codec for codec in info.codecs}
    int4 = codecs["int4"]
    assert int4.dtypes == NUMBERS
    assert set(codecs["lossless"].dtypes) == set(ITEM_SIZE)
    assert (int4.lossless, int4.streaming, int4.fixed_size) == (False, True, True)
    assert (int4.role_aware, int4.couples_heads) == (False, False)
    (group_size,) = int4.parameters
    assert group_size.name == "group_size"
    assert group_size.values == ("32", "64", "128")
    assert group_size.default_value == "64"
    assert (group_size.type, group_size.range) == ("integer", "32, 64 or 128")
    assert not group_size.required
    assert codecs["klt"].parameters[0].required
    assert codecs["klt"].presets == ("contract", "high", "max", "ultra")


def test_options_are_those_of_the_pages(client: Client) -> None:
    """Of each codec, in the order of their values; klt has five at least."""
    options = {
        codec.name: [option.name for option in codec.parameters]
        for codec in client.server_info().codecs
    }
    assert options["klt"][:3] == ["key_step", "value_step", "components"]
    assert len(options["klt"]) >= 5
    for name, listed in options.items():
        page = (REPOSITORY / "docs" / "codecs" / f"{name}.md").read_text()
        _, _, table = page.partition("| parameter |")
        rows = [line.split("|")[1] for line in table.split("\n\n")[0].splitlines()[2:]]
        assert [option for row in rows for option in re.findall("`([a-z_]+)`", row)] == listed


def test_self_test(client: Client) -> None:
    report = client.self_test()
    assert report.passed
    assert {"int4:32", "int4:64", "int4:128"} <= {result.codec for result in report.results}
    assert all(result.passed and not result.message for result in report.results)
    assert all(result.report.metrics.elements > 0 for result in report.results)
    stages = client.server_info().byte_compressors
    assert len(client.self_test("int4").results) == 3 + len(stages)
    for other in ("no such codec", "int4:64", "int4+zstd"):
        with pytest.raises(InvalidArgumentError, match="UNKNOWN_CODEC"):
            client.self_test(other)


@pytest.mark.parametrize("name", ["", "kvcompress.v1.CompressionService"])
def test_health(server: Server, name: str) -> None:
    with grpc.insecure_channel(server.unix_target) as channel:
        assert health(channel, name) == health_pb2.HealthCheckResponse.SERVING


def test_health_of_an_unknown_service(server: Server) -> None:
    with grpc.insecure_channel(server.target) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            health(channel, "no.such")
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND


STREAMS = {
    "nothing": [],
    "no options": [FILE],
    "options twice": [OPTIONS, OPTIONS, FILE],
    "options in between": [OPTIONS, FILE, OPTIONS],
    "an empty message": [OPTIONS, service_pb2.CompressRequest(), FILE],
    "table twice": [OPTIONS, TABLE, TABLE],
    "table after a file": [OPTIONS, FILE, TABLE],
    "file after a table": [OPTIONS, TABLE, FILE],
    "data without a table": [OPTIONS, data("x", b"12345678")],
    "data of another tensor": [OPTIONS, TABLE, data("y", b"12345678")],
    "data too long": [OPTIONS, TABLE, data("x", b"123456789")],
    "data too short": [OPTIONS, TABLE, data("x", b"1234567")],
    "data after the end": [OPTIONS, TABLE, data("x", b"12345678"), data("", b"1")],
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_that_break_a_rule(stub: CompressionServiceStub, name: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.Compress(iter(STREAMS[name]), timeout=30))
    error = from_rpc_error(caught.value)
    assert isinstance(error, InvalidArgumentError)
    assert error.reason


@pytest.mark.parametrize(
    "spec",
    [
        tensor_pb2.TensorSpec(name="", dtype=tensor_pb2.DATA_TYPE_F32),
        tensor_pb2.TensorSpec(name="__metadata__", dtype=tensor_pb2.DATA_TYPE_F32),
        tensor_pb2.TensorSpec(name="n" * 65_536, dtype=tensor_pb2.DATA_TYPE_F32),
        tensor_pb2.TensorSpec(name="x"),
        tensor_pb2.TensorSpec(name="x", dtype=99),  # type: ignore[arg-type]
        tensor_pb2.TensorSpec(name="x", dtype=tensor_pb2.DATA_TYPE_F32, shape=[2**32, 2**32]),
        tensor_pb2.TensorSpec(name="x", dtype=tensor_pb2.DATA_TYPE_F32, shape=[1] * 33),
    ],
    ids=["no name", "reserved", "long", "no type", "unknown type", "too large", "too many"],
)
def test_tables_that_break_a_rule(
    stub: CompressionServiceStub, spec: tensor_pb2.TensorSpec
) -> None:
    table = service_pb2.CompressRequest(tensors=tensor_pb2.TensorTable(tensors=[spec]))
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.Compress(iter([OPTIONS, table]), timeout=30))
    assert isinstance(from_rpc_error(caught.value), InvalidArgumentError)


def test_measure_refuses_reconstruct(stub: CompressionServiceStub) -> None:
    options = service_pb2.CompressOptions(codec="int4", reconstruct=True)
    requests = [service_pb2.MeasureRequest(options=options)]
    requests.append(service_pb2.MeasureRequest(safetensors=caches.tiny()))
    with pytest.raises(grpc.RpcError) as caught:
        stub.Measure(iter(requests), timeout=30)
    error = from_rpc_error(caught.value)
    assert isinstance(error, InvalidArgumentError)
    assert "reconstruct" in (error.field or "")


def test_nobody_there() -> None:
    with (
        Client(f"127.0.0.1:{free_port()}", timeout=10) as client,
        pytest.raises(UnavailableError),
    ):
        client.server_info()
