# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kv-compress -compare: one cache, several codecs, nothing written."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from kv_compress import Run, refuse, succeed

from kvcompress import Client
from oracle.fixtures import REPOSITORY, SAMPLE
from oracle.server import Server, running_server

CODECS = ["lossless", "int8", "int4", "int4-hadamard", "int4-kivi", "sparse", "auto"]
CODECS += ["ecsq:contract", "ecsq:high", "ecsq:max"]
CODECS += ["klt:contract", "klt:high", "klt:max", "klt:ultra"]
GOLDEN = REPOSITORY / "tests" / "golden" / "profile"
# What a compression of the same file says too.
SHARED = ["compression_ratio", "compressed_size_bytes", "snr_db", "worst_tensor", "tensor_count"]


def rows(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The rows by their codecs."""
    return {row["codec"]: row for row in answer["codecs"]}


def test_every_codec_of_the_service(client: Client) -> None:
    """None is left out that somebody could choose, nor a preset."""
    known = [
        f"{codec.name}:{preset}" if preset else codec.name
        for codec in client.server_info().codecs
        for preset in (codec.presets or [""])
    ]
    assert sorted(known) == sorted(CODECS)


def test_without_a_list_all_codecs(run: Run, tmp_path: Path) -> None:
    """Sizes and quality are those of compressing; the smallest that holds the bounds is named."""
    answer = succeed(run("-compare", SAMPLE))
    found = rows(answer)
    assert list(found) == CODECS
    for codec in ("int4", "auto", "klt:high"):
        measured = succeed(run("-input", SAMPLE, "-metrics-only", "-codec", codec))
        within = measured["tensor_count"] - measured["tensors_failed"]
        assert found[codec]["tensors_within_bounds"] == within
        assert {name: found[codec][name] for name in SHARED} == {
            name: measured[name] for name in SHARED
        }
    for row in found.values():
        assert row["compress_mb_per_second"] > 0
        assert row["restore_mb_per_second"] > 0
    holding = [row for row in found.values() if row["tensors_within_bounds"] == row["tensor_count"]]
    best = min(holding, key=lambda row: int(row["compressed_size_bytes"]))
    assert answer["smallest_within_bounds"]["codec"] == best["codec"]
    assert answer["bounds"] == "default"
    assert list(tmp_path.iterdir()) == []


def test_a_list_of_codecs_and_bounds(run: Run, server: Server) -> None:
    """Split at spaces and before names of codecs; bounds count as the gate has them."""
    codecs = "int4:group_size=32+zstd,auto ecsq:0.5,0.5"
    arguments = ("-compare", SAMPLE, "-codec", codecs, "-min-snr-db", "16.5")
    for where in ([], ["-server", server.target]):
        answer = succeed(run(*arguments, *where))
        found = rows(answer)
        assert list(found) == ["int4:group_size=32+zstd", "auto", "ecsq:0.5,0.5"]
        assert answer["bounds"] == "requested"
        gated = run(
            "-input", SAMPLE, "-metrics-only", "-codec", codecs.split(",")[0], *arguments[4:]
        )
        assert gated.returncode == 2
        missed = len(json.loads(gated.stdout)["violations"])
        # The pooled RMSE, which is no bound of the flags, is among them.
        assert 0 < 60 - found["int4:group_size=32+zstd"]["tensors_within_bounds"] <= missed


def test_the_table(run: Run) -> None:
    """A row for each codec under one heading, and the verdict."""
    done = run("-compare", SAMPLE, "-format", "table", "-codec", "lossless,int4,klt:ultra")
    assert done.returncode == 0
    lines = done.stdout.decode().splitlines()
    assert lines[2].split("  ")[0] == "codec"
    assert [line.split()[0] for line in lines[3:6]] == ["lossless", "int4", "klt:ultra"]
    assert re.search(r"lossless +1\.4\dx +exact +exact +60 of 60 +\d+ +\d+$", lines[3])
    assert lines[-1].startswith("Smallest within the bounds on every tensor: lossless, 1.4")
    assert max(len(line) for line in lines) <= 100


def test_a_codec_that_fails_does_not_stop_the_others(run: Run, tmp_path: Path) -> None:
    """NaN, which lossy codecs refuse; the exit status says that something failed."""
    values = np.full(64, np.nan, np.float32)
    header = b'{"x":{"dtype":"F32","shape":[64],"data_offsets":[0,256]}}'
    (tmp_path / "in").write_bytes(len(header).to_bytes(8, "little") + header + values.tobytes())
    done = run("-compare", "in", "-codec", "int4 lossless")
    assert done.returncode == 1
    found = rows(json.loads(done.stdout))
    assert found["int4"]["error"]["code"] == "INVALID_ARGUMENT"
    assert found["lossless"]["tensors_within_bounds"] == 1
    refuse(run("-compare", "in", "-codec", "int4"), "NaN")


def test_a_profile_adds_its_presets(run: Run, bin_dir: Path) -> None:
    """Next to the same codecs without it: of this process, and of a server."""
    cache, profile = GOLDEN / "cache.safetensors", GOLDEN / "tiny.profile"
    answer = succeed(run("-compare", cache, "-profile", profile))
    added = [row for row in answer["codecs"] if row["profile"]]
    assert [row["codec"] for row in answer["codecs"] if not row["profile"]] == CODECS
    assert added
    assert all(row["codec"].startswith("klt:") for row in added)
    with running_server(bin_dir, "--profile-directory", str(GOLDEN)) as profiled:
        served = succeed(run("-compare", cache, "-profile", "tiny", "-server", profiled.target))
        sizes = [row["compressed_size_bytes"] for row in served["codecs"]]
        assert sizes == [row["compressed_size_bytes"] for row in answer["codecs"]]
    listed = succeed(run("-compare", cache, "-profile", profile, "-codec", "int4,klt:high"))
    assert [bool(row["profile"]) for row in listed["codecs"]] == [False, True]


def test_mistakes(run: Run, artefact: Path) -> None:
    """What cannot be compared, and flags that would do nothing."""
    refuse(run("-compare", "-", stdin=SAMPLE.read_bytes()), "needs a file")
    refuse(run("-compare", "absent"), "no such file")
    refuse(run("-compare", artefact), "already compressed")
    refuse(run("-compare", SAMPLE, "-output", "out"), "writes nothing")
    refuse(run("-compare", SAMPLE, SAMPLE), "unexpected argument")
    refuse(run("-compare", SAMPLE, "-preset", "high"), "whole codec strings")
    refuse(run("-compare", SAMPLE, "-info", SAMPLE), "cannot be combined")
