# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kv-compress -compare: one cache, several codecs, nothing written."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kv_compress import Run, refuse, succeed

from kvcompress import Client
from oracle.fixtures import REPOSITORY, SAMPLE
from oracle.server import Server, running_server

CODECS = ["int4", "int4-kivi", "int8", "sparse", "lossless"]
CODECS += ["ecsq:contract", "ecsq:high", "ecsq:max"]
CODECS += ["klt:contract", "klt:high", "klt:max", "klt:ultra", "auto"]
NOT_COMPARED = "int4-hadamard"
GOLDEN = REPOSITORY / "tests" / "golden" / "profile"
# What a compression of the same file says too.
SHARED = ["compression_ratio", "compressed_size_bytes", "snr_db", "worst_tensor", "tensor_count"]


def rows(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The rows by their codecs."""
    return {row["codec"]: row for row in answer["codecs"]}


def test_every_codec_of_the_service(client: Client) -> None:
    """None is left out that a person should choose, nor a preset."""
    known = [
        f"{codec.name}:{preset}" if preset else codec.name
        for codec in client.server_info().codecs
        for preset in (codec.presets or [""])
    ]
    assert sorted(known) == sorted([*CODECS, NOT_COMPARED])


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
    assert lines[-2].startswith("Smallest within the bounds on every tensor: lossless, 1.4")
    assert lines[-1].startswith("Without -codec, compress uses auto at effort fast")
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
    refuse(run("-compare", SAMPLE, "-input", SAMPLE), "without -input")
    refuse(run("-compare", SAMPLE, "-preset", "high"), "whole codec strings")
    refuse(run("-compare", SAMPLE, "-info", SAMPLE), "cannot be combined")


def folder_of(folder: Path, *names: str) -> Path:
    """A folder with copies of the sample."""
    folder.mkdir()
    for name in names:
        shutil.copy(SAMPLE, folder / name)
    return folder


def test_several_files_and_folders(run: Run, tmp_path: Path, artefact: Path) -> None:
    """A line for each, and one that sums them up; artefacts in folders are skipped."""
    folder = folder_of(tmp_path / "caches", "a.safetensors", "b.safetensors")
    shutil.copy(artefact, folder / "a.kvc.safetensors")
    done = run("-compare", folder, SAMPLE, "-codec", "lossless int4")
    assert done.returncode == 0, done.stderr
    assert b"Skipped 1 artefact below " in done.stderr
    *files, summary = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert [Path(file["input"]).name for file in files] == [
        "a.safetensors",
        "b.safetensors",
        SAMPLE.name,
    ]
    assert (summary["files"], summary["failed"]) == (3, 0)
    assert summary["bounds"] == files[0]["bounds"]
    for codec, row in rows(summary).items():
        each = [rows(file)[codec] for file in files]
        assert (row["files"], row["failed"]) == (3, 0)
        for field in ("original_size_bytes", "compressed_size_bytes", "tensor_count"):
            assert row[field] == sum(one[field] for one in each)
        assert row["tensors_within_bounds"] == sum(one["tensors_within_bounds"] for one in each)
        assert row["compression_ratio"] == pytest.approx(each[0]["compression_ratio"])
        assert row["snr_db"] == each[0]["snr_db"]
        speeds = [one["compress_mb_per_second"] for one in each]
        assert min(speeds) <= row["compress_mb_per_second"] <= max(speeds)
    assert summary["smallest_within_bounds"]["codec"] == "lossless"


def test_several_tables(run: Run, tmp_path: Path) -> None:
    """One for each file, then that of all."""
    folder = folder_of(tmp_path / "caches", "a.safetensors", "b.safetensors")
    text = run("-compare", folder, "-format", "table", "-codec", "lossless int4").stdout.decode()
    tables = text.split("; bounds: the default thresholds\n")
    assert len(tables) == 4
    assert tables[2].splitlines()[-1] == "All 2 files"
    assert re.search(r"^lossless +1\.4\dx +exact +exact +120 of 120 +\d+ +\d+$", tables[3], re.M)
    assert text.splitlines()[-2].startswith("Smallest within the bounds on every tensor: lossless")


def test_a_file_that_fails_does_not_stop_the_others(run: Run, tmp_path: Path) -> None:
    """Nor does it count in the summary."""
    folder = folder_of(tmp_path / "caches", "a.safetensors")
    (folder / "b.safetensors").write_bytes(SAMPLE.read_bytes()[:-1])
    done = run("-compare", folder, "-codec", "int4")
    assert done.returncode == 1
    compared, failed, summary = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert (summary["files"], summary["failed"]) == (2, 1)
    assert "ends 1 byte" in failed["error"]["message"]
    assert summary["codecs"][0]["tensor_count"] == compared["codecs"][0]["tensor_count"]
    assert done.stderr.decode().splitlines()[-1] == "2 files: 1 compared, 1 failed"
    nothing = run("-compare", "absent", "missing", "-codec", "int4")
    assert nothing.returncode == 1
    assert len(nothing.stdout.splitlines()) == 2


def test_a_codec_that_fails_with_one_file(run: Run, tmp_path: Path) -> None:
    """Is not the smallest, whatever it did to the others."""
    folder = folder_of(tmp_path / "caches", "a.safetensors")
    values = np.full(64, np.nan, np.float32)
    header = b'{"x":{"dtype":"F32","shape":[64],"data_offsets":[0,256]}}'
    path = folder / "b.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + values.tobytes())
    done = run("-compare", folder, "-codec", "int8 lossless")
    assert done.returncode == 1
    summary = json.loads(done.stdout.decode().splitlines()[-1])
    assert [row["failed"] for row in summary["codecs"]] == [1, 0]
    assert summary["smallest_within_bounds"]["codec"] == "lossless"
    text = run("-compare", path, path, "-codec", "int8 lossless", "-format", "table").stdout
    assert b"int8: failed with every file\n" in text
