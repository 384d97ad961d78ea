# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.batch, with Ray Data on this machine."""

import contextlib
import io
import json
import multiprocessing
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from documents import claimed_line, run_line

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
pytest.importorskip("ray", reason="ray is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import ray  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

from kvcompress import payload  # noqa: E402
from kvcompress.batch import Outcome, Worker, main, run, table  # noqa: E402


@pytest.fixture
def folder(bin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `in` with four caches, one of them with a value that int4 refuses."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir.resolve()))
    (tmp_path / "in" / "deep").mkdir(parents=True)
    random = np.random.default_rng(0)
    for number, name in enumerate(("a", "b", "deep/c", "bad")):
        keys = random.normal(size=(1, 2, 64 + number, 32)).astype(np.float16)
        if name == "bad":
            keys[0, 0, 5, 0] = np.nan
        path = tmp_path / "in" / f"{name}.safetensors"
        path.write_bytes(safetensors.numpy.save({"layer_0_key": keys}))
    (tmp_path / "in" / "notes.txt").write_text("not a cache")
    return tmp_path


@pytest.fixture
def worker(folder: Path) -> Iterator[Worker]:
    """A worker without Ray."""
    worker = Worker(str(folder / "in"), f"file://{folder}/out", {"codec": "int8"})
    yield worker
    worker.close()


def statuses(outcomes: list[Outcome]) -> dict[str, str]:
    """What became of each file."""
    return {outcome.name.removesuffix(".safetensors"): outcome.status for outcome in outcomes}


def test_worker_keeps_what_is_sound(folder: Path, worker: Worker) -> None:
    """The same bytes and options are kept; anything else is made again."""
    row = {"name": "a.safetensors"}
    target = folder / "out" / "a.kvc.safetensors"
    first = worker(row)
    assert (first["status"], first["passed"]) == ("compressed", True)
    assert first["compressed_size_bytes"] == target.stat().st_size
    artefact = target.read_bytes()
    assert worker(row)["status"] == "kept"
    target.write_bytes(artefact[:-3] + b"???")
    assert worker(row)["status"] == "compressed"
    assert target.read_bytes() == artefact
    shutil.copy(folder / "in" / "b.safetensors", folder / "in" / "a.safetensors")
    assert worker(row)["status"] == "compressed"
    assert target.read_bytes() != artefact
    other = Worker(str(folder / "in"), str(folder / "out"), {"codec": "int4"})
    assert other(row)["status"] == "compressed"
    other.close()
    assert list(target.parent.iterdir()) == [target]


def test_source_is_not_replaced_through_a_link(folder: Path) -> None:
    """Where artefacts go into the folder of the sources."""
    source = folder / "in" / "a.safetensors"
    before = source.read_bytes()
    (folder / "in" / "a.kvc.safetensors").symlink_to(source.name)
    worker = Worker(str(folder / "in"), str(folder / "in"), {"codec": "int8"})
    outcome = worker({"name": "a.safetensors"})
    worker.close()
    assert (outcome["status"], source.read_bytes()) == ("failed", before)
    assert "SAME_FILE" in outcome["message"]


def test_worker_gets_over_the_death_of_its_server(worker: Worker) -> None:
    worker._client._connection.close()
    assert worker({"name": "a.safetensors"})["status"] == "compressed"


def job(folder: Path) -> None:
    """What test_job does."""
    source, target = str(folder / "in"), str(folder / "out")
    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
    try:
        outcomes = run(source, target, {"codec": "int8", "labels": {"job": "1"}}, workers=2)
        want = dict.fromkeys(("a", "b", "deep/c"), "compressed")
        assert statuses(outcomes) == {**want, "bad": "failed"}
        bad = next(outcome for outcome in outcomes if outcome.status == "failed")
        assert "layer_0_key" in bad.message
        header = payload.read_header((folder / "out/deep/c.kvc.safetensors").read_bytes())
        assert header.labels["job"] == "1"
        (folder / "out" / "b.kvc.safetensors").unlink()
        outcomes = run(source, target, {"codec": "int8", "labels": {"job": "1"}}, workers=2)
        kept = dict.fromkeys(("a", "deep/c"), "kept")
        assert statuses(outcomes) == {**kept, "b": "compressed", "bad": "failed"}
        total = table(outcomes).splitlines()[-1].split()
        assert total[:3] == ["total", "4", "files"]
        assert total[-6:] == ["1", "compressed,", "1", "failed,", "2", "kept"]
        arguments = [source, str(folder / "json"), "--pattern", "[ab].safe*", "--json"]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            assert main([*arguments, "--codec", "lossless", "--workers", "1"]) == 0
        rows = json.loads(printed.getvalue())
        assert [(row["name"], row["snr_db"]) for row in rows] == [
            ("a.safetensors", None),
            ("b.safetensors", None),
        ]
    finally:
        ray.shutdown()


def test_job(folder: Path) -> None:
    """All of a folder, then again: resumed; the bad file is reported and stops nothing."""
    # Ray forks, and a fork of this process could wait for ever for a lock that one of the threads
    # of gRPC or torch holds.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as process:
        process.submit(job, folder).result(timeout=900)


def test_line_of_the_readme(folder: Path) -> None:
    """From a folder next to it into another."""
    (folder / "in" / "bad.safetensors").unlink()
    (folder / "in").rename(folder / "caches")
    total = run_line(claimed_line("batch"), folder, seconds=600).splitlines()[-1].split()
    assert (total[:3], total[-2:]) == (["total", "3", "files"], ["3", "compressed"])
    artefact = (folder / "compressed" / "deep" / "c.kvc.safetensors").read_bytes()
    assert {tensor.codec for tensor in payload.read_header(artefact).tensors} == {"ecsq:contract"}


def test_nothing_to_do(tmp_path: Path) -> None:
    assert run(str(tmp_path), str(tmp_path / "out"), {}) == []
    assert table([]).splitlines()[-1].startswith("total")
