# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kv-compress as a drop-in for the program whose command line it took over.

What it does with files: there and back, parts of them, damage, and that an output is
complete or not there. Its flags and its reports have files of their own.
"""

import json
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kv_compress import Run, bits, open_files, refuse, succeed
from safetensors import safe_open

from oracle.fixtures import SAMPLE
from oracle.server import Server


def bf16(data: bytes) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """The values of BF16 elements."""
    return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)


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


def test_patterns_that_match_nothing(run: Run, tmp_path: Path, artefact: Path) -> None:
    """Are refused by name, alone, together, and with one that matches."""
    decompress = ["-decompress", "-input", artefact, "-output", "out"]
    for patterns, bad in (
        (["nothing*"], "nothing*"),
        (["layer_?", "nothing*"], "layer_?"),
        (["layer_0_key", "nothing*"], "nothing*"),
        (["nothing*", "*"], "nothing*"),
        ([""], ""),
    ):
        flags = [word for pattern in patterns for word in ("-tensors", pattern)]
        refuse(run(*decompress, *flags), re.escape(f'artefact matches "{bad}"'))
        assert list(tmp_path.iterdir()) == [artefact]


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
    # Who runs the tests may ignore it, as nohup does, and children inherit that.
    heed = ["env", f"--default-signal={number:d}"]
    command = [*heed, str(bin_dir / "kv-compress"), "-input", "-", "-output", "out"]
    data = SAMPLE.read_bytes()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=tmp_path)
    assert process.stdin is not None
    process.stdin.write(data[: len(data) // 2])
    process.stdin.flush()
    deadline = time.monotonic() + 20
    while not any("deleted" in path for path in open_files(process.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert list(tmp_path.iterdir()) == []
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
        arguments = ["-input", SAMPLE, "-codec", "int4"]
        succeed(run("-server", target, *arguments, "-output", flag))
        succeed(run(*arguments, "-output", variable, KVCOMPRESS_SERVER=target))
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
