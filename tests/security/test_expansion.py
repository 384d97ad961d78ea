# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Artefacts that are small and restore to much, by clients that read nothing of it.

Zeros shrink to a ten-thousandth of their size. What a decoder makes of them must wait in the
artefact until it is asked for: a server once held tens of MiB for each 16 KiB that had come, and
15 streams under a budget of 64 MiB grew it to gigabytes.
"""

import itertools
import json
import queue
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy
import pytest
from calls import details, metric, wait_until_released
from health import SERVING
from process_memory import peak
from server_process import BINARY, PATIENCE, ServerProcess, Start

import kvcompress
from kvcompress.v1 import compression_service_pb2 as pb
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

MIB = 1 << 20
SAMPLE = Path(__file__).parents[1] / "data" / "smollm2_kjv_96_bf16.safetensors"
# More than the bound on all streams together: one that is restored at once breaks it. The cache
# is a file with a hole, which takes no time to write.
CACHE = 256 * MIB
GIB = 1 << 30
HEADS, HEAD_DIM = 4, 128
TENSORS = 8
STREAMS = 15
BUDGET = 64 * MIB
MOST = 200 * 10**6
# What a server gathers for a message.
MESSAGE = MIB
CODECS: dict[str, list[str]] = {
    "ecsq": ["-codec", "ecsq"],
    "ecsq+zstd": ["-codec", "ecsq", "-last-stage", "zstd"],
    "int4+lz4": ["-last-stage", "lz4"],
    "lossless": ["-codec", "lossless"],
    "sparse:1": ["-codec", "sparse", "-sparsity", "1"],
    "klt": ["-codec", "klt"],
    "klt-profile": ["-codec", "klt:high"],
}
RECEIVED = 'kvcompress_input_bytes_total{method="Decompress"}'
SENT = 'kvcompress_output_bytes_total{method="Decompress"}'

ArtefactOf = Callable[..., Path]


def header(size: int) -> bytes:
    """Of a cache of `size` bytes."""
    tensor = size // TENSORS
    entries = {
        f"layer_{i // 2}_{('key', 'value')[i % 2]}": {
            "dtype": "BF16",
            "shape": [1, HEADS, tensor // (2 * HEADS * HEAD_DIM), HEAD_DIM],
            "data_offsets": [i * tensor, (i + 1) * tensor],
        }
        for i in range(TENSORS)
    }
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


def run_client(*flags: str) -> None:
    """Runs kv-compress."""
    subprocess.run([BINARY.with_name("kv-compress"), *flags], check=True, capture_output=True)


def train(folder: Path) -> Path:
    """A profile of caches of these shapes, whose groups take little memory for a token."""
    cache = folder / "training"
    values = numpy.random.default_rng(1).standard_normal(MIB // 2, numpy.float32)
    cache.write_bytes(header(MIB) + (values.view("<u4") >> 16).astype("<u2").tobytes())
    profile = folder / "profiles" / "zeros.profile"
    profile.parent.mkdir()
    shape = ["-profile-layers", "1", "-profile-components", "4", "-rope-theta", "0"]
    run_client("-train-profile", str(profile), "-model-label", "zeros", *shape, str(cache))
    return profile


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What klt-profile needs, in a directory of its own."""
    return train(tmp_path_factory.mktemp("profile"))


@pytest.fixture(scope="module")
def artefact_of(tmp_path_factory: pytest.TempPathFactory, profile: Path) -> ArtefactOf:
    """Returns a cache of zeros, compressed with a codec; each is made once."""
    folder = tmp_path_factory.mktemp("zeros")

    def make(codec: str, size: int = CACHE) -> Path:
        cache, path = folder / f"{size}", folder / f"{codec}-{size}"
        if not path.exists():
            begin = header(size)
            with cache.open("wb") as file:
                file.write(begin)
                file.truncate(len(begin) + size)
            uses = ["-profile", str(profile)] if codec == "klt-profile" else []
            files = ["-input", str(cache), "-output", str(path)]
            run_client(*files, *CODECS[codec], *uses)
        return path

    return make


@pytest.fixture
def server(start: Start, profile: Path) -> ServerProcess:
    """With a small budget, and the profile."""
    flags = ["--memory-budget-bytes", str(BUDGET), "--profile-directory", str(profile.parent)]
    return start(*flags)


def requests(artefact: Path, verify_only: bool = False) -> Iterator[pb.DecompressRequest]:
    """All that restores an artefact."""
    yield pb.DecompressRequest(options=pb.DecompressOptions(verify_only=verify_only))
    with artefact.open("rb") as file:
        while data := file.read(MESSAGE):
            yield pb.DecompressRequest(artefact=data)


class Unread:
    """A Decompress stream of a connection of its own, of which nothing is read."""

    def __init__(self, server: ServerProcess, artefact: Path) -> None:
        """Sends an artefact, and does not end the stream."""
        self._held: queue.Queue[pb.DecompressRequest | None] = queue.Queue()
        self._channel = grpc.insecure_channel(
            server.addresses[0], options=[("grpc.use_local_subchannel_pool", 1)]
        )
        sent = itertools.chain(requests(artefact), iter(self._held.get, None))
        self.call = CompressionServiceStub(self._channel).Decompress(sent, timeout=3 * PATIENCE)

    def end(self) -> None:
        """Goes away."""
        self._held.put(None)
        self.call.cancel()
        self._channel.close()


def wait_until_still(server: ServerProcess) -> None:
    """Waits until the server has done for its streams what it does unless they are read."""
    seen, since = None, time.monotonic()
    give_up = since + PATIENCE
    while time.monotonic() < min(since + 1, give_up):
        now = (peak(server.pid), metric(server, RECEIVED), metric(server, SENT))
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.05)


def check_service(server: ServerProcess) -> None:
    """Asks whether all is given back, health says so, and a cache comes back as it was."""
    wait_until_released(server)
    assert server.check() == SERVING
    assert server.get("/healthz")[0] == 200
    with kvcompress.Client(server.addresses[0], timeout=PATIENCE) as client:
        artefact = client.compress(SAMPLE, codec="lossless").artefact
        assert artefact is not None
        assert client.decompress(artefact).safetensors == SAMPLE.read_bytes()


@pytest.mark.parametrize(
    ("codec", "size"),
    [
        *((codec, CACHE) for codec in CODECS),
        *(
            pytest.param(codec, GIB, marks=pytest.mark.slow)
            for codec in ("ecsq", "ecsq+zstd", "int4+lz4", "lossless")
        ),
    ],
)
def test_unread_streams(
    server: ServerProcess, artefact_of: ArtefactOf, codec: str, size: int
) -> None:
    """Take no more than the budget and what a server needs; some are refused, which is right."""
    artefact = artefact_of(codec, size)
    streams = [Unread(server, artefact) for _ in range(STREAMS)]
    wait_until_still(server)
    refused = [stream for stream in streams if not stream.call.is_active()]
    assert len(refused) < STREAMS
    assert metric(server, "kvcompress_inflight_bytes") <= BUDGET
    assert metric(server, SENT) > 0
    for stream in refused:
        with pytest.raises(grpc.RpcError) as error:
            list(stream.call)
        assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details(error.value)[0].reason == "BUDGET_EXHAUSTED"
    for stream in streams:
        stream.end()
    check_service(server)
    print(f"{codec}: {peak(server.pid) / 1e6:.0f} MB, {len(refused)} refused")
    assert peak(server.pid) < MOST


@pytest.mark.parametrize("codec", CODECS)
def test_a_reader_has_all_of_it(server: ServerProcess, artefact_of: ArtefactOf, codec: str) -> None:
    """In messages of a bounded size, from a server that stays small."""
    restored = zeros = 0
    with server.channel() as channel:
        stub = CompressionServiceStub(channel)
        for response in stub.Decompress(requests(artefact_of(codec)), timeout=3 * PATIENCE):
            data = response.safetensors.data
            assert len(data) <= MESSAGE
            restored += len(data)
            zeros += data.count(0)
    assert restored > CACHE
    # The zeros of klt-profile are what its means leave of them.
    assert zeros >= CACHE or codec == "klt-profile"
    assert peak(server.pid) < MOST / 2
    check_service(server)


def test_a_tensor_above_the_budget(start: Start, artefact_of: ArtefactOf) -> None:
    """Of a codec that holds it: refused before it is decoded, verified or not."""
    artefact = artefact_of("klt")
    server = start("--memory-budget-bytes", str(16 * MIB))
    with server.channel() as channel:
        stub = CompressionServiceStub(channel)
        before = peak(server.pid)
        for verify_only in (False, True):
            call = stub.Decompress(requests(artefact, verify_only), timeout=PATIENCE)
            with pytest.raises(grpc.RpcError) as error:
                list(call)
            assert error.value.code() == grpc.StatusCode.OUT_OF_RANGE
            assert details(error.value)[0].reason == "EXCEEDS_BUDGET"
    assert peak(server.pid) - before < CACHE / TENSORS / 2
    check_service(server)


@pytest.mark.parametrize("codec", ["ecsq+zstd", "klt", "klt-profile"])
def test_verifying_takes_no_more(
    server: ServerProcess, artefact_of: ArtefactOf, codec: str
) -> None:
    """What is decoded and given to nobody is not gathered either."""
    with server.channel() as channel:
        stub = CompressionServiceStub(channel)
        call = stub.Decompress(requests(artefact_of(codec), verify_only=True), timeout=3 * PATIENCE)
        assert [response.trailer.original_size_bytes for response in call] == [CACHE]
    assert peak(server.pid) < MOST / 2
    check_service(server)
