# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What names the weights of a model: pairs that may hit, and pairs that must not."""

import logging
import os
from pathlib import Path

import pytest

from kvcompress.integrations._weights import cached_commit, content_of, weights_of

COMMIT, OTHER = "0123456789abcdef" * 2 + "01234567", "f" * 40


def folder_of(place: Path, **files: bytes) -> Path:
    """A model's folder with files of one time."""
    place.mkdir(parents=True)
    for name, data in files.items():
        path = place / name.replace("_", ".")
        path.write_bytes(data)
        os.utime(path, ns=(10**18, 10**18))
    return place


def test_folders(tmp_path: Path) -> None:
    """A copy that keeps the times is the same model; any other weights are not."""
    data = bytes(1_000_000)
    original = folder_of(tmp_path / "a", model_safetensors=data, config_json=b"{}")
    named = weights_of(str(original))
    assert named.startswith("files:")
    copy = folder_of(tmp_path / "b", model_safetensors=data, config_json=b"{ }")
    assert weights_of(str(copy)) == named
    others = {
        "first byte": {"model_safetensors": b"\x01" + data[1:]},
        "last byte": {"model_safetensors": data[:-1] + b"\x01"},
        "longer": {"model_safetensors": data + b"\x00"},
        "another file": {"model_safetensors": data, "more_safetensors": b""},
        "another name": {"model_bin": data},
    }
    for what, files in others.items():
        assert weights_of(str(folder_of(tmp_path / what, **files))) != named, what
    os.utime(copy / "model.safetensors")
    assert weights_of(str(copy)) != named, "saved again, with the same samples"
    link = tmp_path / "link"
    link.symlink_to(original)
    assert weights_of(str(link)) == named
    assert weights_of(str(original / "model.safetensors")).startswith("files:")


def test_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot of the hub, a revision, what the engine has loaded, what the hub's cache has."""
    snapshot = folder_of(tmp_path / "snapshots" / COMMIT, model_safetensors=b"")
    assert weights_of(str(snapshot)) == f"commit:{COMMIT}"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert weights_of("org/model", COMMIT) == f"commit:{COMMIT}"
    assert weights_of("org/model", None, OTHER) == f"commit:{OTHER}"
    references = tmp_path / "hub" / "models--org--model" / "refs"
    references.mkdir(parents=True)
    (references / "main").write_text(COMMIT)
    (references / "v2").write_text(f"{OTHER}\n")
    assert weights_of("org/model") == f"commit:{COMMIT}"
    assert weights_of("org/model", "v2") == f"commit:{OTHER}"
    assert weights_of("org/model", "v2", COMMIT) == f"commit:{COMMIT}", "what it has loaded"
    assert cached_commit("org/model") == COMMIT
    (references / "main").write_text("no commit")
    assert cached_commit("org/model") is cached_commit("org/other") is None


def test_content(tmp_path: Path) -> None:
    """Of a file alone, wherever it is and however old: each part of it counts."""
    data = bytearray(os.urandom(1_000_000))
    file, copy = tmp_path / "model.gguf", tmp_path / "copy.gguf"
    file.write_bytes(data)
    copy.write_bytes(data)
    os.utime(copy, ns=(10**18, 10**18))
    named = content_of(str(file))
    assert content_of(str(copy)) == named
    for place in (0, 123_456, 999_999):
        changed = bytearray(data)
        changed[place] ^= 1
        copy.write_bytes(changed)
        assert content_of(str(copy)) != named, place
    with pytest.raises(FileNotFoundError):
        content_of(str(tmp_path / "none"))


def test_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning says so, and what to do."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    for model in ("org/model", str(folder_of(tmp_path / "empty", config_json=b"{}"))):
        with caplog.at_level(logging.WARNING):
            assert weights_of(model, "main") == f"unknown:{model}"
        assert f"nothing says which weights {model} has" in caplog.text
        caplog.clear()
