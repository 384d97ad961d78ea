# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kv-compress train: what it prints, and what it refuses."""

import re

import pytest
from kv_compress import Run

from oracle.fixtures import REPOSITORY

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
