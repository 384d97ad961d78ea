# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What is restored through files in memory, and when it is sent instead."""

import errno
import gc
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")

from transformers import DynamicCache  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

import kvcompress  # noqa: E402
from kvcompress.integrations import _exchange  # noqa: E402
from kvcompress.integrations._exchange import Exchange  # noqa: E402
from kvcompress.integrations.transformers import (  # noqa: E402
    CompressedCache,
    cache_tensors,
)
from oracle.server import running_server  # noqa: E402

THROUGH_FILES = {"own", "shared"}


@pytest.fixture(params=["own", "shared", "on disk", "tcp"])
def exchange(
    request: pytest.FixtureRequest,
    bin_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[kvcompress.Client, Exchange, Path | None]]:
    """A client of a server of its own, of one that shares a directory, or of one elsewhere.

    With the directory of the files: None where all is sent.
    """
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir.resolve()))
    with ExitStack() as stack:
        target, folder = None, None
        if request.param != "own":
            place = "/dev/shm" if request.param == "shared" else tmp_path
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=place)))
            running = running_server(bin_dir, "--shared-directory", str(folder))
            server = stack.enter_context(running)
            target = server.target if request.param == "tcp" else server.unix_target
        client = stack.enter_context(kvcompress.Client(target, timeout=60))
        made = Exchange(client)
        made.open()
        expected = request.param in THROUGH_FILES
        assert (made._folder is not None) == expected
        assert folder is None or made._folder in {None, folder}
        yield client, made, made._folder


def states() -> dict[str, Any]:
    """Two tensors of types that differ."""
    torch.manual_seed(1)
    keys = torch.randn(1, 2, 40, 16)
    return {"layer_0_key": keys.bfloat16(), "layer_0_value": keys.flip(-1)}


def test_values_and_no_file_stays(
    exchange: tuple[kvcompress.Client, Exchange, Path | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole and in part, with labels, and where memory for files is full."""
    client, made, folder = exchange
    artefact = client.compress(states(), codec="lossless", labels={"a": "b"}).artefact
    assert artefact is not None
    for tokens in (None, (8, 24)):
        restored = made.restore(artefact, 60, tokens=tokens, expected_labels={"a": "b"})
        for name, tensor in states().items():
            wanted = tensor if tokens is None else tensor[..., slice(*tokens), :]
            assert torch.equal(restored[name], wanted)
            assert restored[name].dtype == tensor.dtype
    with pytest.raises(kvcompress.DataLossError):
        made.restore(artefact, expected_labels={"a": "c"})
    damaged = artefact[:-1] + bytes([artefact[-1] ^ 1])
    with pytest.raises(kvcompress.DataLossError):
        made.restore(damaged)
    if folder is not None:
        assert made._folder == folder
        assert {each.name for each in folder.iterdir()} <= {"lock"}

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "open", full)
    restored = made.restore(artefact)
    assert torch.equal(restored["layer_0_key"], states()["layer_0_key"])
    assert made._folder is None


def test_files_once_the_server_has_answered(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is sent, and found to be damaged, or restored."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir.resolve()))
    with kvcompress.Client() as client:
        artefact = client.compress(states(), codec="lossless").artefact
        assert artefact is not None
        made = Exchange(client)
        with pytest.raises(kvcompress.DataLossError):
            made.restore(artefact[:-1])
        assert made._folder is None
        for _ in range(2):
            restored = made.restore(artefact)
            assert torch.equal(restored["layer_0_key"], states()["layer_0_key"])
            assert made._folder is not None


def test_files_are_used_again(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once their tensors are gone, views included, and not before."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir.resolve()))
    with kvcompress.Client() as client:
        made = Exchange(client, spares=1)
        made.open()
        folder = made._folder
        assert folder is not None
        artefact = client.compress(states(), codec="lossless").artefact
        other = {name: -tensor for name, tensor in states().items()}
        negated = client.compress(other, codec="lossless").artefact
        assert artefact is not None
        assert negated is not None
        files: set[int] = set()

        def look() -> int:
            present = {each.stat().st_ino for each in folder.glob("*.tensors")}
            files.update(present)
            return len(present)

        view = made.restore(artefact)["layer_0_key"][..., :4, :]
        assert look() == 1
        kept = made.restore(negated)
        assert look() == 2
        assert torch.equal(view, states()["layer_0_key"][..., :4, :])
        view.zero_()  # a view's memory is its own
        del view
        gc.collect()
        for _ in range(3):
            again = made.restore(artefact)
            assert torch.equal(again["layer_0_key"], states()["layer_0_key"])
            assert torch.equal(kept["layer_0_key"], other["layer_0_key"])
            del again
        assert look() == 2
        assert len(files) == 2
        del kept
        gc.collect()
        assert look() == 1
        del made
        gc.collect()
        assert not folder.exists()


def test_what_a_killed_process_left_goes(bin_dir: Path) -> None:
    """With the next one that restores; what is in use stays."""
    program = """
import kvcompress
from kvcompress.integrations._exchange import Exchange
made = Exchange(kvcompress.Client())
made.open()
print(made._folder, flush=True)
input()
"""
    environment = {**os.environ, "KVCOMPRESS_BIN_DIR": str(bin_dir.resolve())}
    folders = []
    with ExitStack() as stack:
        for killed in (True, False, False):
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", program],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            assert process.stdout is not None
            folders.append(Path(process.stdout.readline().strip()))
            assert folders[-1].is_dir()
            if killed:
                process.kill()
                process.wait()
                assert folders[0].is_dir()
        assert not folders[0].exists()
        assert folders[1].is_dir()
    assert not any(folder.exists() for folder in folders)


def test_fifo_of_somebody_else_is_not_waited_for(
    bin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a folder of others, or one behind a link, taken for one that was left."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir.resolve()))
    monkeypatch.setattr(_exchange, "_SHARED_MEMORY", tmp_path)
    for name, make in (("fifo", os.mkfifo), ("socket", bound), ("file", Path.touch)):
        (tmp_path / f"kvcompress-{name}").mkdir()
        make(tmp_path / f"kvcompress-{name}" / "lock")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "lock").touch()
    (tmp_path / "kvcompress-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "kvcompress-loop").symlink_to(tmp_path / "kvcompress-loop")
    (tmp_path / "kvcompress-plain").touch()
    with monkeypatch.context() as patch:
        patch.setattr(_exchange, "is_own", lambda found: False)
        _exchange._remove_abandoned()
    assert (tmp_path / "kvcompress-file").is_dir(), "it belongs to another user"
    _exchange._remove_abandoned()
    left = {each.name for each in tmp_path.iterdir()} - {"elsewhere"}
    assert left == {f"kvcompress-{name}" for name in ("fifo", "socket", "link", "loop", "plain")}
    assert (tmp_path / "elsewhere" / "lock").is_file()


def bound(path: Path) -> None:
    """Makes a socket of this name."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def test_forked_process_leaves_the_folder(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the files in it, whatever it drops: they are its parent's."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir.resolve()))
    with kvcompress.Client() as client:
        made = Exchange(client, spares=1)
        made.open()
        artefact = client.compress(states(), codec="lossless").artefact
        assert artefact is not None
        kept = [made.restore(artefact)]
        gone = made.restore(artefact)
        del gone
        gc.collect()
        folder = made._folder
        assert folder is not None
        before = sorted(folder.iterdir())
        assert len(before) == 3, "the lock, what is in use, and a spare"
        child = os.fork()
        if child == 0:
            kept.clear()
            spare = made._spares.take()
            made._spares.close()
            del made
            gc.collect()
            os._exit(0 if spare is None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert sorted(folder.iterdir()) == before
        assert torch.equal(made.restore(artefact)["layer_0_key"], states()["layer_0_key"])
        assert torch.equal(kept[0]["layer_0_key"], states()["layer_0_key"])


def test_cache_through_memory(
    exchange: tuple[kvcompress.Client, Exchange, Path | None],
    model: Any,  # noqa: ANN401
) -> None:
    """A model's cache of several blocks, as one that is not compressed."""
    client, *_ = exchange
    torch.manual_seed(0)
    ids = torch.randint(1, 90, (1, 60))
    plain = DynamicCache(config=model.config)
    cache = CompressedCache(
        client, model.config, codec="lossless", residual_length=4, block_length=8
    )
    with torch.no_grad():
        for begin in range(0, 60, 12):
            for each in (plain, cache):
                model(ids[:, begin : begin + 12], past_key_values=each)
    assert len(list(cache.blocks)) > 2
    expected = cache_tensors(plain)
    for name, tensor in cache_tensors(cache).items():
        assert torch.allclose(tensor, expected[name], atol=1e-5)
