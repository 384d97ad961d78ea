# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What names the weights of a LoRA adapter, and when nothing says which ones an engine has."""

import os
import time
from pathlib import Path

import pytest

from kvcompress.integrations._adapters import Adapters, adapter_of

COMMIT, OTHER = "0123456789abcdef" * 2 + "01234567", "f" * 40
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def adapter(folder: Path, weights: bytes = bytes(100_000), config: bytes = b'{"r": 8}') -> Path:
    """A folder of an adapter, with files of one time."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in ((WEIGHTS, weights), (CONFIG, config)):
        (folder / name).write_bytes(data)
        os.utime(folder / name, ns=(10**18, 10**18))
    return folder


def train(folder: Path, start: float) -> None:
    """Changes weights after a moment, however coarse the file system's clock is."""
    changed = start
    while changed <= start:
        adapter(folder, weights=b"\x01" + bytes(99_999))
        changed = (folder / WEIGHTS).stat().st_ctime


def test_files(tmp_path: Path) -> None:
    """A copy that keeps the times is the same adapter; other weights, or another scale, are not."""
    named = adapter_of(str(adapter(tmp_path / "a")))
    assert named is not None
    assert named.startswith("files:")
    assert adapter_of(str(adapter(tmp_path / "b"))) == named
    (tmp_path / "b" / "README.md").write_text("of no effect")
    assert adapter_of(str(tmp_path / "b")) == named
    others = {
        "weights": adapter(tmp_path / "c", weights=b"\x01" + bytes(99_999)),
        "size": adapter(tmp_path / "d", weights=bytes(100_001)),
        "scale": adapter(tmp_path / "e", config=b'{"r": 4}'),
    }
    found = [adapter_of(str(each)) for each in others.values()]
    assert len({named, *found}) == 1 + len(others)
    os.utime(tmp_path / "b" / WEIGHTS)
    assert adapter_of(str(tmp_path / "b")) != named, "saved again, with the same samples"


def test_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "empty").mkdir()
    for path in ("org/adapter", str(tmp_path / "none"), str(tmp_path / "empty")):
        assert adapter_of(path) is None
        assert Adapters().of(path) is None


def test_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its commit, which is a folder of the hub's cache; another one while it runs is unknown."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    model = tmp_path / "hub" / "models--org--adapter"
    (model / "refs").mkdir(parents=True)
    for commit in (COMMIT, OTHER):
        adapter(model / "snapshots" / commit)
    (model / "refs" / "main").write_text(COMMIT)
    assert adapter_of("org/adapter") == f"commit:{COMMIT}"
    engine = Adapters()
    assert engine.of("org/adapter") == f"commit:{COMMIT}"
    (model / "refs" / "main").write_text(OTHER)
    assert engine.of("org/adapter") is None
    assert Adapters().of("org/adapter") == f"commit:{OTHER}"


def test_trained_further_while_an_engine_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine has the weights of before, or those of now: nobody says, until it is restarted."""
    path = str(adapter(tmp_path / "adapter"))
    before = time.time()
    engine = Adapters()
    first = engine.of(path)
    assert first == adapter_of(path)
    assert engine.of(path) == first
    assert not caplog.records
    train(tmp_path / "adapter", before)
    assert engine.of(path) is None
    assert engine.of(path) is None
    adapter(tmp_path / "adapter")
    assert engine.of(path) is None, "whatever they are now"
    assert [record.levelname for record in caplog.records] == ["WARNING"], "once"
    assert "until the engine is started again" in caplog.text
    again = Adapters().of(path)
    assert again == adapter_of(path) == first


def test_trained_further_before_the_first_request(tmp_path: Path) -> None:
    """An engine loads adapters when it starts: files that are newer are not what it has."""
    path = str(adapter(tmp_path / "adapter"))
    engine = Adapters()
    train(tmp_path / "adapter", time.time())
    assert engine.of(path) is None
    assert Adapters().of(path) == adapter_of(path) is not None


def test_link_to_another_adapter(tmp_path: Path) -> None:
    """The other one is older than the engine; the link to it is not."""
    adapter(tmp_path / "a")
    adapter(tmp_path / "b", weights=b"\x01" + bytes(99_999))
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a")
    engine, start = Adapters(), time.time()
    while link.lstat().st_ctime <= start:
        link.unlink()
        link.symlink_to(tmp_path / "b")
    assert engine.of(str(link)) is None
    assert Adapters().of(str(link)) == adapter_of(str(tmp_path / "b"))
