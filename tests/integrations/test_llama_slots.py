# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Files of kvcompress.integrations.llama_cpp, without llama.cpp: slots are written here."""

import errno
import json
import os
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from documents import claimed, run_line

import kvcompress
from kvcompress.integrations._llama_state import StateError
from kvcompress.integrations.llama_cpp import compress, load_state, main, restore, save_state

pytestmark = pytest.mark.slow

CELLS, ROW = 40, 256
METADATA = {
    "general.architecture": "llama",
    "llama.block_count": "1",
    "llama.embedding_length": "128",
    "llama.attention.head_count": "2",
}


def slot(cells: int = CELLS, beginning: bytes = struct.pack("<III", 0x67677371, 3, 0)) -> bytes:
    """A slot file with one layer in F16."""
    state = beginning + struct.pack("<II", 1, cells)
    state += b"".join(struct.pack("<iIi", cell, 1, 0) for cell in range(cells))
    state += struct.pack("<II", 0, 1)
    states = np.random.default_rng(0).normal(size=(2, cells * ROW // 2)).astype("<f2")
    return state + b"".join(struct.pack("<iQ", 1, ROW) + part.tobytes() for part in states)


def llama(context: int, cells: int = CELLS) -> Any:  # noqa: ANN401
    """What a llama_cpp.Llama is to this module."""
    state = SimpleNamespace(
        llama_state=slot(cells, struct.pack("<I", 5) + b"llama"),
        input_ids=np.arange(cells, dtype=np.intc),
        n_tokens=cells,
        seed=1,
    )
    loaded: list[Any] = []
    return SimpleNamespace(
        metadata=METADATA,
        model_path=__file__,
        n_ctx=lambda: context,
        scores=np.zeros((context, 3)),
        save_state=lambda: state,
        load_state=loaded.append,
        loaded=loaded,
    )


@pytest.fixture
def artefact(client: kvcompress.Client) -> bytes:
    """Of a slot, without loss."""
    made = compress(client, slot(), head_dim=64, codec="lossless").artefact
    assert made is not None
    return made


def test_output_that_is_there_stays(
    client: kvcompress.Client,
    server: Any,  # noqa: ANN401
    artefact: bytes,
    tmp_path: Path,
) -> None:
    """Unless it is to be replaced; the input never is."""
    output, small = tmp_path / "slot.bin", tmp_path / "slot.kvc"
    output.write_bytes(b"old")
    small.write_bytes(artefact)
    with pytest.raises(kvcompress.AlreadyExistsError, match="overwrite=True"):
        restore(client, small, output)
    command = ["--server", server.target, "restore", str(small), str(output)]
    assert main(command) == 1
    assert output.read_bytes() == b"old"
    assert main([*command, "--overwrite"]) == 0
    assert output.read_bytes() == slot()
    for call in (
        lambda: restore(client, small, small, overwrite=True),
        lambda: compress(client, output, output, overwrite=True, head_dim=64),
    ):
        with pytest.raises(kvcompress.InvalidArgumentError, match="one file"):
            call()
    assert (small.read_bytes(), output.read_bytes()) == (artefact, slot())
    with pytest.raises(kvcompress.AlreadyExistsError):
        compress(client, output, small, head_dim=64, codec="lossless")


def test_full_disk_leaves_what_was_there(
    client: kvcompress.Client, artefact: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no part of a file under another name."""
    (tmp_path / "slot.bin").write_bytes(b"old")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            restore(client, artefact, tmp_path / "slot.bin", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["slot.bin"]
    assert (tmp_path / "slot.bin").read_bytes() == b"old"


def test_output_that_is_a_link_stays_one(
    client: kvcompress.Client, artefact: bytes, tmp_path: Path
) -> None:
    (tmp_path / "link.bin").symlink_to("real.bin")
    restore(client, artefact, tmp_path / "link.bin")
    assert (tmp_path / "link.bin").is_symlink()
    assert (tmp_path / "real.bin").read_bytes() == slot()


def test_several_threads_restore_one_slot(
    client: kvcompress.Client, artefact: bytes, tmp_path: Path
) -> None:
    """All of them succeed, and nothing else is left."""
    output = tmp_path / "slot.bin"
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(restore, client, artefact, output, overwrite=True) for _ in range(16)]
        assert all(call.result() == slot() for call in calls)
    assert [path.name for path in tmp_path.iterdir()] == ["slot.bin"]
    assert output.read_bytes() == slot()


def test_slots_that_are_no_files_or_endless(client: kvcompress.Client, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 42)
    for name in ("fifo", "sparse"):
        with pytest.raises(StateError):
            compress(client, tmp_path / name, head_dim=64)
        with pytest.raises(StateError):
            load_state(client, llama(64), tmp_path / name)


def test_state_larger_than_the_context_is_not_restored(
    client: kvcompress.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bound to the right model, as whoever stores artefacts can do."""
    save_state(client, llama(CELLS), tmp_path / "small", codec="lossless+zstd")
    target = llama(CELLS)
    load_state(client, target, tmp_path / "small")
    [state] = target.loaded
    assert state.llama_state == target.save_state().llama_state
    assert list(state.input_ids) == list(range(CELLS))

    save_state(client, llama(9000, 9000), tmp_path / "large", codec="lossless+zstd")
    monkeypatch.setattr(client, "decompress", None)
    with pytest.raises(StateError, match="of a context of 40 tokens"):
        load_state(client, llama(CELLS), tmp_path / "large")


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "{}", '{"extended": 1}', "1"])
def test_metadata_of_somebody_else(client: kvcompress.Client, text: str) -> None:
    for form in (text, json.dumps({"extended": False, "values": True})):
        made = client.compress(
            {"state": np.zeros(9, np.uint8)}, metadata={"llama_cpp.form": form}
        ).artefact
        assert made is not None
        with pytest.raises(StateError):
            restore(client, made)


@pytest.fixture
def shell(bin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the programs and the slots that the guides name."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir.resolve()))
    (tmp_path / "bin").symlink_to(bin_dir.resolve())
    (tmp_path / "slots").mkdir()
    for name in ("slot.bin", "slots/document.bin"):
        (tmp_path / name).write_bytes(slot())
    return tmp_path


def test_lines_of_the_guide(shell: Path) -> None:
    """The slot comes back with its size, and other values than it had."""
    compressing, restoring = claimed("llama.cpp slots", "docs/guides/llama-cpp.md")
    assert "times smaller" in run_line(compressing, shell)
    assert (shell / "document.kvc").stat().st_size < len(slot()) / 2
    run_line(restoring, shell)
    restored = (shell / "slots" / "document.bin").read_bytes()
    assert len(restored) == len(slot())
    assert restored != slot()


def test_lines_of_a_cache_of_your_own(shell: Path) -> None:
    """A slot becomes a cache: the states of its layers, and all else as bytes."""
    for line in claimed("llama.cpp slots", "docs/guides/your-own-cache.md"):
        run_line(line, shell)
    tensors, _ = kvcompress.load_arrays((shell / "cache.safetensors").read_bytes())
    shapes = {name: array.shape for name, array in tensors.items() if name != "state"}
    heads = (1, ROW // 2 // 64, CELLS, 64)
    assert shapes == {"layer_0_key": heads, "layer_0_value": heads}
    states = tensors["layer_0_key"][0].transpose(1, 0, 2).tobytes()
    assert states in slot()
    assert tensors["state"].dtype == np.uint8
