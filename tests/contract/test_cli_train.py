# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kv-compress train: what it prints, and what it refuses."""

import re
from pathlib import Path

import pytest
import xxhash
from kv_compress import Run, succeed

from oracle.fixtures import REPOSITORY
from oracle.profiles import read_safetensors
from oracle.test_profiles import cache, payloads, train, write_with

GOLDEN = REPOSITORY / "tests" / "golden" / "profile"


def test_an_artefact_is_no_cache_to_train_on(run: Run) -> None:
    artefact = GOLDEN / "cache.kvc.safetensors"
    done = run("-train-profile", "p", "-model-label", "m", artefact)
    assert done.returncode == 1
    assert re.search("it is an artefact, .*: train on the cache", done.stderr.decode())


def test_the_table_of_a_training(run: Run) -> None:
    for presets, row in (
        ("high=0.5:20:0.02:0.1", "high 0.5 20.00x 20 %"),
        ("high=0.5", "high 0.5 - not measured"),
    ):
        flags = ["-model-label", "m", "-profile-layers", "2", "-train-presets", presets]
        done = run(
            "train", "-o", "p", "-force", "-format", "table", *flags, GOLDEN / "cache.safetensors"
        )
        assert done.returncode == 0, done.stderr
        lines = [" ".join(line.split()) for line in done.stdout.decode().splitlines()]
        assert "groups of 2, 2 layers" in lines
        assert lines[-1] == row


@pytest.mark.parametrize("codec", ["klt:high", "lossless"])
def test_a_cache_of_the_training_warns(run: Run, tmp_path: Path, codec: str) -> None:
    """By its bytes, whatever else the file has; also of a profile with the basis of another."""
    profile = train(run, tmp_path, "-rope-theta", 10000)
    header, _ = read_safetensors(profile.read_bytes())
    caches = (cache(1, 200), cache(2, 120))
    marks = ",".join(xxhash.xxh3_128_hexdigest(payloads(each)["layer_0_key"]) for each in caches)
    assert header["kvcompress.profile.caches"] == marks
    again = tmp_path / "again.profile"
    flags = ("-model-label", "tiny", "-train-basis", profile, "-train-presets", "high=0.25")
    succeed(run("-train-profile", again, *flags, tmp_path / "training-1.safetensors"))
    assert read_safetensors(again.read_bytes())[0]["kvcompress.profile.caches"] == marks
    (tmp_path / "in").write_bytes(cache(3, 200))
    (tmp_path / "seen").write_bytes(write_with({"a": "b"}, caches[1]))
    for each in (profile, again):
        for name, expected in (("in", []), ("seen", ["PROFILE_TRAINING_CACHE"])):
            measured = run(
                *("-input", tmp_path / name, "-metrics-only", "-profile", each, "-codec", codec)
            )
            report = succeed(measured)
            assert [warning["code"] for warning in report["warnings"]] == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-train-profile", "p"], "needs caches"),
        (["-train-profile", "p", "cache"], "needs -model-label"),
        (["-train-profile", "p", "-input", "x", "cache"], "without -input"),
        (["-train-profile", "p", "-model-label", "m", "absent"], "absent: .*opened"),
        (["-model-label", "m", "-input", "x", "-output", "y"], "needs? -train-profile"),
        (["-profile", "p", "-info", "x"], "-profile needs"),
        (["-profile", "p", "-server", "unix:x", "-verify", "x"], "finds the profile"),
        (["-profile-layers", "x", "-train-profile", "p", "-model-label", "m", "c"], "layers"),
        (["-train-presets", "a", "-train-profile", "p", "-model-label", "m", "c"], "a list such"),
        (["-train-presets", "a=1:2", "-train-profile", "p", "-model-label", "m", "c"], "a list"),
        (
            [
                "-train-basis",
                "b",
                "-train-note",
                "n",
                "-train-profile",
                "p",
                "-model-label",
                "m",
                "c",
            ],
            "-train-basis cannot",
        ),
        (["-train-metric", "x", "-input", "x", "-output", "y"], "need -train-profile"),
    ],
)
def test_mistakes(run: Run, arguments: list[str], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert re.search(words, done.stderr.decode()), done.stderr
