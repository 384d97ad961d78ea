# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Calls through the generated stub, with nothing of the client library in between."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kvcompress.v1 import compression_service_pb2 as service_pb2
from kvcompress.v1 import quality_pb2, tensor_pb2
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub
from oracle.source import ITEM_SIZE, read

DTYPES = {name: tensor_pb2.DataType.Value(f"DATA_TYPE_{name}") for name in ITEM_SIZE}


@dataclass
class Answer:
    """What Compress returned.

    Attributes:
        kinds: The kind of each message, in order, runs of one kind given once.
        begin: The first message.
        artefact: The artefact, every chunk at its offset.
        offsets: Offset and size of each chunk of the artefact.
        reconstructed: The reconstructed file.
        trailer: The last message.
    """

    kinds: list[str] = field(default_factory=list)
    begin: service_pb2.CompressBegin = field(default_factory=service_pb2.CompressBegin)
    artefact: bytearray = field(default_factory=bytearray)
    offsets: list[tuple[int, int]] = field(default_factory=list)
    reconstructed: bytearray = field(default_factory=bytearray)
    trailer: quality_pb2.CompressionReport = field(default_factory=quality_pb2.CompressionReport)


def chunks(data: bytes, size: int) -> Iterator[bytes]:
    """Cuts bytes into chunks of `size`, the last one possibly shorter."""
    for start in range(0, len(data), size):
        yield data[start : start + size]


def file_requests(
    file: bytes, size: int, options: service_pb2.CompressOptions | None = None
) -> Iterator[service_pb2.CompressRequest]:
    """Yields the requests of Compress for a file."""
    yield service_pb2.CompressRequest(options=options or service_pb2.CompressOptions(codec="int4"))
    for chunk in chunks(file, size):
        yield service_pb2.CompressRequest(safetensors=chunk)


def tensor_requests(
    file: bytes,
    size: int,
    options: service_pb2.CompressOptions | None = None,
    *,
    named: bool = True,
) -> Iterator[service_pb2.CompressRequest]:
    """Yields the requests of Compress that declare the file's tensors instead."""
    tensors, metadata = read(file)
    yield service_pb2.CompressRequest(options=options or service_pb2.CompressOptions(codec="int4"))
    table = tensor_pb2.TensorTable(metadata=metadata)
    for each in tensors:
        table.tensors.add(name=each.name, dtype=DTYPES[each.dtype], shape=each.shape)
    yield service_pb2.CompressRequest(tensors=table)
    for each in tensors:
        for chunk in chunks(each.data, size):
            data = tensor_pb2.TensorChunk(name=each.name if named else "", data=chunk)
            yield service_pb2.CompressRequest(tensor_data=data)


def compress(
    stub: CompressionServiceStub, requests: Iterator[service_pb2.CompressRequest]
) -> Answer:
    """Calls Compress and puts the answer together."""
    answer = Answer()
    for response in stub.Compress(requests, timeout=120):
        kind = response.WhichOneof("message") or "nothing"
        if not answer.kinds or answer.kinds[-1] != kind:
            answer.kinds.append(kind)
        if kind == "begin":
            answer.begin = response.begin
            answer.artefact.extend(bytes(response.begin.reserved_header_bytes))
        elif kind == "artefact":
            offset, data = response.artefact.offset, response.artefact.data
            answer.offsets.append((offset, len(data)))
            answer.artefact.extend(bytes(max(0, offset + len(data) - len(answer.artefact))))
            answer.artefact[offset : offset + len(data)] = data
        elif kind == "reconstructed":
            assert response.reconstructed.offset == len(answer.reconstructed)
            answer.reconstructed.extend(response.reconstructed.data)
        elif kind == "trailer":
            answer.trailer = response.trailer
    return answer


def decompress(
    stub: CompressionServiceStub, artefact: bytes, size: int
) -> tuple[bytes, service_pb2.DecompressionReport]:
    """Calls Decompress; returns the file and the trailer, which must come last."""

    def requests() -> Iterator[service_pb2.DecompressRequest]:
        yield service_pb2.DecompressRequest(options=service_pb2.DecompressOptions())
        for chunk in chunks(artefact, size):
            yield service_pb2.DecompressRequest(artefact=chunk)

    restored, last = bytearray(), None
    for last in stub.Decompress(requests(), timeout=120):
        if last.WhichOneof("message") == "safetensors":
            assert last.safetensors.offset == len(restored)
            restored.extend(last.safetensors.data)
    assert last is not None
    assert last.WhichOneof("message") == "trailer"
    return bytes(restored), last.trailer
