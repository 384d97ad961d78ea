# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The API, kv-compress and the Python package read the same codec strings in the same way."""

from pathlib import Path

import grpc
import pytest
from kv_compress import Run, refuse, succeed

from kvcompress import Client, InvalidArgumentError, payload
from kvcompress.options import CodecChoice
from kvcompress.v1.compression_service_pb2 import CompressOptions
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub
from oracle import caches, raw
from oracle.fixtures import SAMPLE

FILE = caches.tiny()

# A string, the same as a mapping, the same in flags of kv-compress, and its canonical form.
STRINGS: list[tuple[str, CodecChoice, list[str], str]] = [
    ("int4", {"name": "int4"}, [], "int4:64"),
    ("int4", {"name": "int4", "group_size": 64}, ["-group-size", "64"], "int4:64"),
    (
        "int4:32+zstd",
        {"name": "int4", "group_size": 32, "byte_compressor": "zstd"},
        ["-group-size", "32", "-last-stage", "zstd"],
        "int4:32+zstd",
    ),
    (
        "sparse:0.25",
        {"name": "sparse", "sparsity": 0.25},
        ["-sparsity", "0.25"],
        "sparse:0.25,64",
    ),
    (
        "sparse:group_size=128",
        {"name": "sparse", "group_size": 128},
        ["-codec", "sparse", "-group-size", "128"],
        "sparse:0.5,128",
    ),
    (
        "sparse:1,32+lz4",
        {"name": "sparse", "sparsity": 1.0, "group_size": 32, "byte_compressor": "lz4"},
        ["-sparsity", "1.0", "-group-size", "32", "-last-stage", "lz4"],
        "sparse:1,32+lz4",
    ),
    ("ecsq", {"name": "ecsq"}, ["-codec", "ecsq"], "ecsq:contract"),
    (
        "ecsq:0.52,0.52",
        {"name": "ecsq", "key_step": 0.52, "value_step": 0.52},
        ["-codec", "ecsq", "-preset", "0.52,0.52"],
        "ecsq:0.52,0.52",
    ),
    (
        "ecsq:0.50,1.0",
        {"name": "ecsq", "key_step": ".5", "value_step": "1."},
        ["-codec", "ecsq", "-preset", "5e-1,01"],
        "ecsq:0.5,1",
    ),
    (
        "klt:ultra",
        {"name": "klt", "preset": "ultra"},
        ["-codec", "klt", "-preset", "ultra"],
        "klt:ultra",
    ),
    (
        "klt:1,2,weighting=0.3",
        {"name": "klt", "weighting": 0.3, "key_step": 1, "value_step": 2},
        ["-codec", "klt:1,2", "-preset", "weighting=0.3"],
        "klt:1,2,weighting=0.3",
    ),
    ("lossless+lz4", {"name": "lossless", "byte_compressor": "lz4"}, [], "lossless+lz4"),
]

# A string, the same as a mapping, and what is wrong with it.
MISTAKES: list[tuple[str, CodecChoice, str, str]] = [
    ("int3", {"name": "int3"}, "UNKNOWN_CODEC", 'unknown codec "int3"; this build has: int4, '),
    (
        "int4:48",
        {"name": "int4:48"},
        "INVALID_CODEC_OPTION",
        'int4: group_size is "48", but must be 32, 64 or 128; it takes group_size (32, 64 or 128;'
        " default 64)",
    ),
    (
        "int4:high",
        {"name": "int4", "preset": "high"},
        "INVALID_CODEC_OPTION",
        'int4 has no preset "high"; it takes group_size',
    ),
    (
        "int4:sparsity=0.5",
        {"name": "int4", "sparsity": 0.5},
        "INVALID_CODEC_OPTION",
        'int4 has no option "sparsity"; it takes group_size',
    ),
    (
        "sparse:sparsity=0.12345",
        {"name": "sparse", "sparsity": 0.12345},
        "INVALID_CODEC_OPTION",
        'sparse: sparsity is "0.12345", but must be a number from 0 to 1 with at most four digits'
        " after the point",
    ),
    (
        "klt:low",
        {"name": "klt", "preset": "low"},
        "INVALID_CODEC_OPTION",
        "sharpening (a number from 0 to 2 with at most four digits after the point; default 0)",
    ),
    (
        "ecsq:low",
        {"name": "ecsq", "preset": "low"},
        "INVALID_CODEC_OPTION",
        ", or a preset: contract, high or max",
    ),
    (
        "ecsq:key_step=1",
        {"name": "ecsq", "key_step": 1},
        "INVALID_CODEC_OPTION",
        "ecsq: value_step is missing, which must be a number from 0.05 to 8",
    ),
    (
        "int4+gzip",
        {"name": "int4", "byte_compressor": "gzip"},
        "UNKNOWN_BYTE_COMPRESSOR",
        'unknown byte compressor "gzip"; this build has: lz4, zstd; one may stand at the end:'
        " int4:64+zstd",
    ),
]


def test_without_a_codec(client: Client, stub: CompressionServiceStub) -> None:
    """It is `auto`, which holds the thresholds, and fast unless an effort is given."""
    cache = SAMPLE.read_bytes()
    answer = raw.compress(stub, raw.file_requests(cache, 1 << 20, CompressOptions()))
    fast = client.compress(cache, codec="auto", effort="fast")
    assert client.compress(cache).artefact == fast.artefact == bytes(answer.artefact)
    assert fast.report.verdict.passed
    usual = client.compress(cache, codec="auto", effort="balanced")
    assert client.compress(cache, effort="balanced").artefact == usual.artefact


@pytest.mark.parametrize(("text", "mapping", "flags", "canonical"), STRINGS)
def test_strings(
    client: Client,
    stub: CompressionServiceStub,
    run: Run,
    tmp_path: Path,
    text: str,
    mapping: CodecChoice,
    flags: list[str],
    canonical: str,
) -> None:
    """Every spelling produces the same artefact, and every report says it canonically."""
    (tmp_path / "in").write_bytes(FILE)
    answer = raw.compress(stub, raw.file_requests(FILE, 1 << 20, CompressOptions(codec=text)))
    assert answer.begin is not None
    assert answer.trailer is not None
    assert (answer.begin.codec, answer.trailer.codec) == (canonical, canonical)
    want = bytes(answer.artefact)
    for codec in (text, mapping, canonical):
        got = client.compress(FILE, codec=codec)
        assert (got.report.codec, got.artefact) == (canonical, want)
    for arguments in (["-codec", text], flags or ["-codec", text]):
        report = succeed(run("-input", "in", "-output", "out", *arguments))
        assert report["codec"] == canonical
        assert (tmp_path / "out").read_bytes() == want
        (tmp_path / "out").unlink()
    (tmp_path / "artefact").write_bytes(want)
    info = succeed(run("-info", "artefact"))
    assert {tensor["codec"] for tensor in info["tensors"]} == {canonical}
    name, plus, compressor = canonical.partition("+")
    stored = {tensor.codec for tensor in payload.read_header(want).tensors}
    head, colon, parameters = name.partition(":")
    assert stored == {f"{head}{plus}{compressor}{colon}{parameters}"}


@pytest.mark.parametrize(("text", "mapping", "reason", "words"), MISTAKES)
def test_mistakes(
    client: Client,
    stub: CompressionServiceStub,
    run: Run,
    tmp_path: Path,
    text: str,
    mapping: CodecChoice,
    reason: str,
    words: str,
) -> None:
    """Every way to say it is refused in the same words."""
    (tmp_path / "in").write_bytes(FILE)
    with pytest.raises(grpc.RpcError) as refused:
        raw.compress(stub, raw.file_requests(FILE, 1 << 20, CompressOptions(codec=text)))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    message = refused.value.details() or ""
    assert words in message
    for codec in (text, mapping):
        with pytest.raises(InvalidArgumentError) as caught:
            client.compress(FILE, codec=codec)
        error = caught.value
        assert (error.reason, error.field) == (reason, "options.codec")
        assert error.message == message
    done = run("-input", "in", "-output", "out", "-codec", text)
    refuse(done, "")
    assert message in done.stderr.decode()


def test_help_and_server_info_agree(client: Client, run: Run) -> None:
    """Both follow what the codecs declare."""
    text = run("-help").stdout.decode()
    for codec in client.server_info().codecs:
        assert f"\n  {codec.name}\n      {codec.description}\n" in text
        for option in codec.parameters:
            assert f"      {option.name}: {option.description}: {option.range}" in text
        for value in codec.presets:
            assert value in text
