# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kv-compress as a drop-in for the program whose command line it took over.

Flags, messages, exit codes, JSON, and that an output file is complete or not there.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from malformed import CASES
from safetensors import safe_open

from oracle.fixtures import SAMPLE
from oracle.server import Server

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]

SEED_FLAGS = ["input", "output", "group-size", "sparsity", "decompress", "metrics-only", "verbose"]
NEW_FLAGS = ["server", "codec", "preset", "min-snr-db", "progress", "info", "verify", "tensors"]
NEW_FLAGS += ["tokens"]

# The fields of the program that was replaced, in its order, and their types.
SEED_FIELDS: dict[str, type] = {
    "compression_ratio": float,
    "original_size_bytes": int,
    "compressed_size_bytes": int,
    "rmse": float,
    "snr_db": float,
    "cosine_similarity": float,
    "max_error": float,
    "quality_level": str,
    "processing_time_ms": float,
    "quality_passed": bool,
    "violations": list,
}
NEW_FIELDS: dict[str, type] = {
    "codec": str,
    "bits_per_value": float,
    "mse": float,
    "mae": float,
    "psnr_db": float,
    "payload_digest": str,
    "worst_tensor": dict,
}


@pytest.fixture
def run(bin_dir: Path, tmp_path: Path) -> Run:
    """Runs kv-compress in an empty folder, without a server in the environment."""

    def run(
        *arguments: object, stdin: bytes | None = None, **environment: str
    ) -> "subprocess.CompletedProcess[bytes]":
        variables = {k: v for k, v in os.environ.items() if not k.startswith("KVCOMPRESS_")}
        return subprocess.run(
            [str(bin_dir / "kv-compress"), *map(str, arguments)],
            input=b"" if stdin is None else stdin,
            capture_output=True,
            cwd=tmp_path,
            env={**variables, **environment},
            timeout=60,
        )

    return run


@pytest.fixture
def artefact(run: Run, tmp_path: Path) -> Path:
    """The sample, compressed."""
    path = tmp_path / "artefact"
    succeed(run("-input", SAMPLE, "-output", path))
    return path


def succeed(done: "subprocess.CompletedProcess[bytes]") -> dict[str, Any]:
    """The JSON of a run that went well."""
    assert done.returncode == 0, done.stderr.decode()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def refuse(done: "subprocess.CompletedProcess[bytes]", words: str) -> None:
    """Checks that a run failed, said why on stderr, and put nothing on stdout."""
    message = done.stderr.decode()
    assert done.returncode == 1, message
    assert message.startswith("Error: "), message
    assert re.search(words, message), message
    assert done.stdout == b""


def bits(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Type, shape and bytes of every tensor of a safetensors file."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    return {
        name: (
            entry["dtype"],
            entry["shape"],
            data[end + entry["data_offsets"][0] : end + entry["data_offsets"][1]],
        )
        for name, entry in header.items()
    }


def bf16(data: bytes) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """The values of BF16 elements."""
    return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)


# Arguments, and words of the message.
MISTAKES: list[tuple[list[object], str]] = [
    ([], "-input is required"),
    (["-output", "out"], "-input is required"),
    (["-input", SAMPLE], "-output is required"),
    (["-input="], "-input is required"),
    (["-decompress", "-input", SAMPLE], "-output is required"),
    (["-input", "absent", "-output", "out"], "read input: open .*: no such file"),
    (["-input", ".", "-output", "out"], "read input: .*directory"),
    (["-input", SAMPLE, "-output", "absent/out"], "absent/"),
    (["-bogus"], "flag provided but not defined: -bogus"),
    (["--bogus=1"], "flag provided but not defined: -bogus"),
    (["-input"], "flag needs an argument: -input"),
    (["-group-size", "x"], "-input is required|invalid value .*group-size"),
    (["-input", SAMPLE, "-output", "out", "-group-size", "63"], "group.size.*32, 64 or 128"),
    (
        ["-input", SAMPLE, "-output", "out", "-group-size", "x"],
        'invalid value "x" .*group-size',
    ),
    (["-input", SAMPLE, "-output", "out", "-sparsity", "2"], "sparsity.*0 to 1"),
    (["-input", SAMPLE, "-output", "out", "-sparsity", "-1"], "sparsity.*0 to 1"),
    (["-input", SAMPLE, "-output", "out", "-sparsity", "nan"], "sparsity"),
    (["-input", SAMPLE, "-output", "out", "-codec", "bogus"], "bogus"),
    (["-input", SAMPLE, "-output", "out", "-preset", "bogus"], "preset"),
    (["-input", SAMPLE, "-output", "out", "stray"], "stray"),
    (["-input", SAMPLE, "-output", "out", "-tokens", "0:1"], "-tokens.*-decompress"),
    (["-info", SAMPLE, "-input", SAMPLE], "-input"),
    (["-info", SAMPLE], "not a compressed one"),
]


def words_of(value: object) -> str:
    """Names a test after its arguments."""
    return "_".join(Path(str(v)).name for v in value) if isinstance(value, list) else ""


@pytest.mark.parametrize(("arguments", "words"), MISTAKES, ids=words_of)
def test_mistakes_on_the_command_line(
    run: Run, tmp_path: Path, arguments: list[object], words: str
) -> None:
    """Every mistake is named, and leaves nothing behind."""
    refuse(run(*arguments), words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("json_cut_short", "parse header: invalid JSON"),
        ("deep_nesting", "parse header: invalid JSON"),
        ("dtype_i64", "unsupported data type: I64"),
    ],
)
def test_messages_of_the_program_replaced(run: Run, tmp_path: Path, name: str, words: str) -> None:
    """Broken files are called what they were called before."""
    path = tmp_path / "in"
    path.write_bytes(next(case.data for case in CASES if case.name == name))
    refuse(run("-input", path, "-metrics-only"), words)


@pytest.mark.parametrize("flag", ["-help", "--help", "-h", "-version", "--version"])
def test_help_and_version(run: Run, flag: str) -> None:
    """They go to standard output and succeed."""
    done = run(flag)
    assert done.returncode == 0
    assert b"kv-compress" in done.stdout
    assert done.stderr == b""


def test_help_lists_every_flag(run: Run) -> None:
    """The flags of the contract are all there."""
    text = run("-help").stdout.decode()
    for flag in [*SEED_FLAGS, *NEW_FLAGS]:
        assert re.search(rf"-{flag}\b", text), flag


@pytest.mark.parametrize(
    "arguments",
    [
        ["--input", SAMPLE, "--output", "out", "--group-size", "32"],
        [f"-input={SAMPLE}", "-output=out", "-group-size=32"],
        [f"--input={SAMPLE}", "--output=out", "--group-size=32", "--decompress=false"],
        ["-group-size", "32", "-verbose", "-output", "out", "-input", SAMPLE],
        ["-group-size", "64", "-input", SAMPLE, "-output", "out", "-group-size", "32"],
        ["-input", SAMPLE, "-output", "out", "-group-size", "32", "-sparsity", "0.0"],
        ["-input", SAMPLE, "-output", "out", "-group-size", "32", "-codec", "int4"],
    ],
    ids=["two_dashes", "equals", "two_dashes_equals", "order", "last_wins", "sparsity_0", "codec"],
)
def test_spellings_of_the_same_command(run: Run, tmp_path: Path, arguments: list[object]) -> None:
    """Every spelling gives the same artefact."""
    succeed(run("-input", SAMPLE, "-output", "expected", "-group-size", "32"))
    succeed(run(*arguments))
    assert (tmp_path / "out").read_bytes() == (tmp_path / "expected").read_bytes()


def test_fields_of_the_json(run: Run) -> None:
    """The old fields come first and in order, with their types; then the new ones."""
    answer = succeed(run("-input", SAMPLE, "-output", "out"))
    assert list(answer)[: len(SEED_FIELDS)] == list(SEED_FIELDS)
    for name, kind in {**SEED_FIELDS, **NEW_FIELDS}.items():
        assert type(answer[name]) is kind, name
    assert "tensor_metrics" not in answer
    assert answer["quality_level"] in {"EXCELLENT", "GOOD", "ACCEPTABLE", "POOR"}
    assert re.fullmatch("xxh3-128:[0-9a-f]{32}", answer["payload_digest"])
    assert answer["quality_passed"] is (answer["violations"] == [])


def test_sizes_are_measured(run: Run, tmp_path: Path) -> None:
    """Sizes are those of the files, and the ratio is against 16-bit values."""
    answer = succeed(run("-input", SAMPLE, "-output", "out"))
    data = sum(len(data) for _, _, data in bits(SAMPLE).values())
    size = (tmp_path / "out").stat().st_size
    assert (answer["original_size_bytes"], answer["compressed_size_bytes"]) == (data, size)
    assert answer["compression_ratio"] == pytest.approx(data / size)
    assert answer["bits_per_value"] == pytest.approx(8 * size / (data / 2))


def test_verbose_reports_every_tensor(run: Run) -> None:
    """tensor_metrics has the old keys, one for each tensor; logs stay off stdout."""
    done = run("-input", SAMPLE, "-metrics-only", "-verbose")
    answer = succeed(done)
    assert set(answer["tensor_metrics"]) >= {f"{name}_rmse" for name in bits(SAMPLE)}
    assert all(type(value) is float for value in answer["tensor_metrics"].values())
    assert done.stderr != b""


def test_metrics_only_writes_nothing(run: Run, tmp_path: Path) -> None:
    """It measures what compressing measures."""
    measured = succeed(run("-input", SAMPLE, "-metrics-only"))
    assert list(tmp_path.iterdir()) == []
    compressed = succeed(run("-input", SAMPLE, "-output", "out"))
    del measured["processing_time_ms"], compressed["processing_time_ms"]
    assert measured == compressed


def test_larger_groups_are_smaller_and_worse(run: Run) -> None:
    """The trade of -group-size goes the way it says."""
    answers = [
        succeed(run("-input", SAMPLE, "-metrics-only", "-group-size", n)) for n in (32, 64, 128)
    ]
    ratios = [answer["compression_ratio"] for answer in answers]
    errors = [answer["rmse"] for answer in answers]
    assert ratios == sorted(ratios)
    assert errors == sorted(errors)
    assert succeed(run("-input", SAMPLE, "-metrics-only"))["rmse"] == errors[1]


def test_decompression_restores_the_cache(run: Run, tmp_path: Path, artefact: Path) -> None:
    """Names, order, types, shapes and metadata; values as far off as was reported."""
    reported = succeed(run("-input", SAMPLE, "-metrics-only"))
    restored = tmp_path / "restored"
    succeed(run("-decompress", "-input", artefact, "-output", restored))
    before, after = bits(SAMPLE), bits(restored)
    assert [(n, *v[:2]) for n, v in before.items()] == [(n, *v[:2]) for n, v in after.items()]
    with safe_open(SAMPLE, "np") as source, safe_open(restored, "np") as result:
        assert (source.metadata() or {}) == (result.metadata() or {})
    x = np.concatenate([bf16(data) for _, _, data in before.values()])
    y = np.concatenate([bf16(data) for _, _, data in after.values()])
    assert reported["rmse"] == pytest.approx(float(np.sqrt(np.mean((y - x) ** 2))), rel=1e-9)
    assert reported["max_error"] == pytest.approx(float(np.abs(y - x).max()), rel=1e-9)


def test_kernels_change_no_byte_and_no_metric(run: Run, tmp_path: Path) -> None:
    """Those of the machine against the portable ones; a set that is not there is refused."""
    for codec in ("int4", "int4-hadamard", "auto"):
        reports, artefacts = [], []
        for kernels in ("", "portable"):
            output = tmp_path / f"{codec}-{kernels}"
            arguments = ("-input", SAMPLE, "-output", output, "-codec", codec)
            report = succeed(run(*arguments, KVCOMPRESS_KERNELS=kernels))
            del report["processing_time_ms"]
            reports.append(report)
            artefacts.append(output.read_bytes())
        assert reports[0] == reports[1]
        assert artefacts[0] == artefacts[1]
    refused = run("-input", SAMPLE, "-metrics-only", KVCOMPRESS_KERNELS="mmx")
    assert refused.returncode == 1
    assert b'KVCOMPRESS_KERNELS: this machine has no kernels "mmx", only ' in refused.stderr


def test_standard_input_and_output(run: Run, tmp_path: Path, artefact: Path) -> None:
    """A dash is a stream; the JSON then makes way for the data."""
    done = run("-input", "-", "-output", "-", stdin=SAMPLE.read_bytes())
    assert done.returncode == 0
    assert done.stdout == artefact.read_bytes()
    assert "compression_ratio" in json.loads(done.stderr)
    succeed(run("-decompress", "-input", artefact, "-output", "restored"))
    done = run("-decompress", "-input", "-", "-output", "-", stdin=done.stdout)
    assert done.stdout == (tmp_path / "restored").read_bytes()


def test_info_lists_an_artefact(run: Run, artefact: Path) -> None:
    """Tensors, codecs, sizes and digests, without decoding a payload."""
    answer = succeed(run("-info", artefact))
    source = bits(SAMPLE)
    assert [tensor["name"] for tensor in answer["tensors"]] == list(source)
    for tensor in answer["tensors"]:
        dtype, shape, data = source[tensor["name"]]
        assert (tensor["dtype"], tensor["shape"]) == (dtype, shape)
        assert tensor["original_size_bytes"] == len(data)
        assert tensor["codec"] == "int4:64"
        assert re.fullmatch("[0-9a-f]{32}", tensor["digest"])
    payload = sum(tensor["payload_size_bytes"] for tensor in answer["tensors"])
    assert answer["header_size_bytes"] + payload == artefact.stat().st_size
    damaged = bytearray(artefact.read_bytes())
    damaged[-1] ^= 1
    artefact.write_bytes(damaged)
    assert succeed(run("-info", artefact)) == answer


def test_verify_accepts_a_sound_artefact(run: Run, tmp_path: Path, artefact: Path) -> None:
    """It writes nothing."""
    assert succeed(run("-verify", artefact))["verified"] is True
    assert list(tmp_path.iterdir()) == [artefact]


@pytest.mark.parametrize("where", ["header", "payload", "cut", "longer"])
def test_verify_finds_damage(run: Run, tmp_path: Path, artefact: Path, where: str) -> None:
    """Damage anywhere is exit status 1 and said on both streams."""
    data = bytearray(artefact.read_bytes())
    last = list(bits(SAMPLE))[-1]
    if where == "header":
        data[200] ^= 4
    elif where == "payload":
        data[-5] ^= 4
    elif where == "cut":
        del data[-1]
    else:
        data.append(0)
    artefact.write_bytes(data)
    done = run("-verify", artefact)
    assert done.returncode == 1
    assert json.loads(done.stdout)["verified"] is False
    if where in {"payload", "cut"}:
        assert last in done.stderr.decode()
    refuse(run("-decompress", "-input", artefact, "-output", "out"), "")
    assert list(tmp_path.iterdir()) == [artefact]


def test_only_some_tensors(run: Run, tmp_path: Path, artefact: Path) -> None:
    """-tensors takes shell patterns and may be repeated."""
    succeed(run("-decompress", "-input", artefact, "-output", "all"))
    everything = bits(tmp_path / "all")
    names = list(everything)
    chosen = [name for name in names if name.endswith("_key")]
    succeed(run("-decompress", "-input", artefact, "-output", "keys", "-tensors", "*_key"))
    assert bits(tmp_path / "keys") == {name: everything[name] for name in chosen}
    arguments = ["-tensors", names[0], f"-tensors={names[3]}"]
    succeed(run("-decompress", "-input", artefact, "-output", "two", *arguments))
    assert list(bits(tmp_path / "two")) == [names[0], names[3]]


def test_only_some_tokens(run: Run, tmp_path: Path, artefact: Path) -> None:
    """-tokens cuts the third dimension."""
    succeed(run("-decompress", "-input", artefact, "-output", "all"))
    succeed(run("-decompress", "-input", artefact, "-output", "some", "-tokens", "10:17"))
    some = bits(tmp_path / "some")
    for name, (dtype, shape, data) in bits(tmp_path / "all").items():
        expected = np.frombuffer(data, "<u2").reshape(shape)[:, :, 10:17]
        assert some[name] == (dtype, list(expected.shape), expected.tobytes())
    refuse(run("-decompress", "-input", artefact, "-output", "x", "-tokens", "90:97"), "token")
    refuse(run("-decompress", "-input", artefact, "-output", "x", "-tokens", "7"), "tokens")


def test_gate_that_does_not_hold(run: Run, tmp_path: Path) -> None:
    """Exit status 2, the metrics, and no output."""
    done = run("-input", SAMPLE, "-output", "out", "-min-snr-db", "100")
    assert done.returncode == 2
    answer = json.loads(done.stdout)
    assert answer["quality_passed"] is False
    assert any("100" in violation for violation in answer["violations"])
    assert list(tmp_path.iterdir()) == []
    assert run("-input", SAMPLE, "-metrics-only", "-min-snr-db", "100").returncode == 2


def test_gate_that_holds(run: Run) -> None:
    """A bound below every tensor's SNR."""
    succeed(run("-input", SAMPLE, "-output", "out", "-min-snr-db", "1"))


def test_missed_threshold_without_a_gate_succeeds(run: Run, tmp_path: Path) -> None:
    """As before: reported in the JSON only. A group with one outlier misses all of them."""
    values = np.full(64, 0.4, np.float32)
    values[0] = 70.0
    header = b'{"x":{"dtype":"F32","shape":[64],"data_offsets":[0,256]}}'
    (tmp_path / "in").write_bytes(len(header).to_bytes(8, "little") + header + values.tobytes())
    answer = succeed(run("-input", "in", "-output", "out"))
    assert answer["quality_passed"] is False
    assert answer["quality_level"] == "POOR"


def test_exact_reconstruction_has_no_snr(run: Run, tmp_path: Path) -> None:
    """It is null, not infinity, which JSON has not."""
    header = b'{"x":{"dtype":"F32","shape":[64],"data_offsets":[0,256]}}'
    (tmp_path / "in").write_bytes(len(header).to_bytes(8, "little") + header + bytes(256))
    answer = succeed(run("-input", "in", "-output", "out"))
    assert (answer["snr_db"], answer["rmse"], answer["quality_level"]) == (None, 0.0, "EXCELLENT")


def test_sparsity_is_stored(run: Run, tmp_path: Path) -> None:
    """It takes the codec that has one: 3.25 bits a value at 0.5, header on top."""
    answer = succeed(run("-input", SAMPLE, "-output", "out", "-sparsity", "0.5"))
    assert answer["codec"] == "sparse:0.5,64"
    assert answer["compressed_size_bytes"] == (tmp_path / "out").stat().st_size
    assert 3.25 < answer["bits_per_value"] < 3.4
    same = succeed(run("-input", SAMPLE, "-output", "two", "-codec", "sparse"))
    assert same["payload_digest"] == answer["payload_digest"]
    refuse(
        run("-input", SAMPLE, "-output", "x", "-sparsity", "0.5", "-codec", "int8"), "-codec sparse"
    )
    refuse(run("-input", SAMPLE, "-output", "x", "-sparsity", "0.12345"), "four digits")


def test_gate_by_role(run: Run, tmp_path: Path) -> None:
    """Bounds of any metric, for keys and values apart; a miss names tensor and metric."""
    bounds = ["-thresholds", "max_rmse=1", "-value-thresholds", "max_rmse=0.001"]
    done = run("-input", SAMPLE, "-output", "out", *bounds)
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []
    missed = json.loads(done.stdout)["violations"]
    assert any("layer_0_value" in sentence and "misses by" in sentence for sentence in missed)
    assert not any("_key" in sentence for sentence in missed)
    succeed(run("-input", SAMPLE, "-output", "out", "-codec", "auto", *bounds[:2]))
    refuse(run("-input", SAMPLE, "-output", "x", "-thresholds", "rmse=1"), "max_rmse")


def test_last_stage(run: Run) -> None:
    """Both round trips, and a name that there is not."""
    sizes = {}
    for stage in ("", "lz4", "zstd"):
        answer = succeed(run("-input", SAMPLE, "-output", "out", "-last-stage", stage))
        sizes[stage] = answer["compressed_size_bytes"]
        succeed(run("-verify", "out"))
        succeed(run("-decompress", "-input", "out", "-output", "back"))
    assert sizes["zstd"] < sizes[""]
    refuse(run("-input", SAMPLE, "-output", "x", "-last-stage", "gzip"), "lz4, zstd")


def test_rope_theta(run: Run) -> None:
    """The right base is found out anyway; none costs bits."""
    found, told, none = (
        succeed(run("-input", SAMPLE, "-output", "out", "-codec", "ecsq", *more))
        for more in ([], ["-rope-theta", "100000"], ["-rope-theta", "0"])
    )
    assert found["payload_digest"] == told["payload_digest"]
    assert none["compressed_size_bytes"] > told["compressed_size_bytes"]


def test_compressing_twice_is_refused(run: Run, artefact: Path) -> None:
    """An artefact is a safetensors file, but not a cache."""
    refuse(run("-input", artefact, "-output", "out"), "already compressed")
    refuse(run("-decompress", "-input", SAMPLE, "-output", "out"), "not a compressed one")


def test_output_is_kept_when_the_input_is_broken(run: Run, tmp_path: Path) -> None:
    """A failed run replaces nothing."""
    (tmp_path / "in").write_bytes(SAMPLE.read_bytes()[:-1])
    (tmp_path / "out").write_text("precious")
    refuse(run("-input", "in", "-output", "out"), "ends 1 byte")
    assert (tmp_path / "out").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_output_appears_only_when_complete(bin_dir: Path, tmp_path: Path, number: int) -> None:
    """While input is still coming there is no output; a signal leaves nothing."""
    command = [str(bin_dir / "kv-compress"), "-input", "-", "-output", "out"]
    data = SAMPLE.read_bytes()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=tmp_path)
    assert process.stdin is not None
    process.stdin.write(data[: len(data) // 2])
    process.stdin.flush()
    deadline = time.monotonic() + 20
    while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not (tmp_path / "out").exists()
    process.send_signal(number)
    assert process.wait(20) != 0
    process.stdin.close()
    assert list(tmp_path.iterdir()) == []


def test_full_disk_leaves_nothing(run: Run, tmp_path: Path) -> None:
    """An output that cannot be written is an error that says so."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    refuse(run("-input", SAMPLE, "-output", "/dev/full"), "no space left")
    assert list(tmp_path.iterdir()) == []


def test_server_gives_the_same_bytes(
    run: Run, tmp_path: Path, artefact: Path, server: Server
) -> None:
    """By -server and by KVCOMPRESS_SERVER, over TCP and a Unix socket."""
    expected = artefact.read_bytes()
    for number, target in enumerate((server.target, server.unix_target)):
        flag, variable = f"flag{number}", f"variable{number}"
        succeed(run("-server", target, "-input", SAMPLE, "-output", flag))
        succeed(run("-input", SAMPLE, "-output", variable, KVCOMPRESS_SERVER=target))
        assert (tmp_path / flag).read_bytes() == expected
        assert (tmp_path / variable).read_bytes() == expected
    arguments = ["-server", server.target, "-decompress", "-input", artefact, "-output", "remote"]
    succeed(run(*arguments))
    succeed(run("-decompress", "-input", artefact, "-output", "local"))
    assert (tmp_path / "remote").read_bytes() == (tmp_path / "local").read_bytes()


def test_server_that_is_not_there(run: Run, tmp_path: Path) -> None:
    """Named, and found out in good time."""
    begun = time.monotonic()
    refuse(run("-server", "127.0.0.1:1", "-input", SAMPLE, "-output", "out"), "127.0.0.1:1")
    refuse(run("-server", "unix:absent", "-input", SAMPLE, "-output", "out"), "absent")
    assert time.monotonic() - begun < 30
    assert list(tmp_path.iterdir()) == []


def test_binary_can_be_copied_alone(bin_dir: Path, tmp_path: Path) -> None:
    """It needs no file of the repository."""
    alone = tmp_path / "kvc"
    shutil.copy2(bin_dir / "kv-compress", alone)
    command = [str(alone), "-input", str(SAMPLE), "-metrics-only"]
    assert subprocess.run(command, capture_output=True, cwd="/", timeout=60).returncode == 0
