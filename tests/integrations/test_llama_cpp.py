# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.integrations.llama_cpp with llama-cpp-python and SmolLM2-135M."""

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
pytest.importorskip("torch", reason="the environment with models is not installed")

import numpy as np  # noqa: E402
from documents import claimed_blocks  # noqa: E402

import kvcompress  # noqa: E402
from kvcompress.integrations.llama_cpp import (  # noqa: E402
    compress,
    head_dim_of,
    load_state,
    main,
    restore,
    save_state,
)

REPOSITORY = Path(__file__).parents[2]
TOKENS, CONTEXT = 150, 256


@pytest.fixture(scope="module")
def library() -> Any:  # noqa: ANN401
    """llama-cpp-python, if it is installed or was built: that takes longer than all else here."""
    if importlib.util.find_spec("llama_cpp") is not None:
        return pytest.importorskip("llama_cpp")
    command = [str(REPOSITORY / "tests/tools/llama-cpp"), "--cached"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("there is no llama-cpp-python: run tests/tools/llama-cpp, once")
    sys.path.extend(map(str, Path(done.stdout.strip()).glob("lib/python3*/site-packages")))
    return pytest.importorskip("llama_cpp")


@pytest.fixture(scope="module")
def gguf() -> str:
    """The model."""
    sys.path.insert(0, str(REPOSITORY / "validation"))
    from measure.models import packaged

    carried = packaged("smollm2")
    assert carried is not None
    return str(carried.file())


@pytest.fixture(scope="module")
def evaluated(library: Any, gguf: str) -> tuple[Any, Any, list[int]]:  # noqa: ANN401
    """A model that has read a text, its state, and what it says next."""
    llama = new(library, gguf)
    text = (REPOSITORY / "core/FORMAT.md").read_bytes()[4000:6000]
    llama.eval(llama.tokenize(text)[:TOKENS])
    state = llama.save_state()
    return llama, state, following(llama)


def new(library: Any, gguf: str) -> Any:  # noqa: ANN401
    """A model that has read nothing."""
    # Threads that wait for each other on processors that others use as well hardly get on.
    threads = {"n_threads": 1, "n_threads_batch": 1}
    return library.Llama(gguf, n_ctx=CONTEXT, seed=0, verbose=False, **threads)


def following(llama: Any) -> list[int]:  # noqa: ANN401
    """The next tokens, the most likely ones."""
    tokens = []
    llama.eval([llama.tokenize(b"\n")[-1]])
    for _ in range(6):
        tokens.append(llama.sample(temp=0))
        llama.eval(tokens[-1:])
    return tokens


def test_same_answer_without_loss(
    client: kvcompress.Client,
    library: Any,  # noqa: ANN401
    gguf: str,
    evaluated: tuple[Any, Any, list[int]],
    tmp_path: Path,
) -> None:
    """In a model that has read nothing: state and answer are those of the first."""
    llama, state, answer = evaluated
    llama.load_state(state)
    save_state(client, llama, tmp_path / "small", codec="lossless")
    other = new(library, gguf)
    load_state(client, other, tmp_path / "small")
    assert other.n_tokens == TOKENS
    assert other.save_state().llama_state == state.llama_state
    assert following(other) == answer


def test_near_answer_at_a_quarter(
    client: kvcompress.Client,
    library: Any,  # noqa: ANN401
    gguf: str,
    evaluated: tuple[Any, Any, list[int]],
    tmp_path: Path,
) -> None:
    """With klt: the distribution of the next token is near that of the first model."""
    llama, state, answer = evaluated
    llama.load_state(state)
    result = save_state(client, llama, tmp_path / "small", codec="klt")
    print(f"klt {result.report.compression_ratio:.2f}x")
    assert result.report.compression_ratio > 4
    assert result.report.roles.keys == result.report.roles.values == 30
    other = new(library, gguf)
    load_state(client, other, tmp_path / "small")
    assert following(other)[0] == answer[0]
    llama.load_state(state)
    logits = []
    for model in (llama, other):
        model.n_tokens = TOKENS
        model.eval([answer[0]])
        pointer = library.llama_get_logits_ith(model._ctx.ctx, -1)
        logits.append(np.ctypeslib.as_array(pointer, (model.n_vocab(),)).astype(np.float64))
    first, second = (np.exp(each - each.max()) for each in logits)
    first, second = first / first.sum(), second / second.sum()
    assert np.sum(first * np.log(first / second)) < 0.1


def test_block_of_the_readme(
    client: kvcompress.Client,
    evaluated: tuple[Any, Any, list[int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    llama, state, _ = evaluated
    llama.load_state(state)
    monkeypatch.chdir(tmp_path)
    [block] = claimed_blocks("llama.cpp")
    exec(block, {"client": client, "llama": llama})
    assert (tmp_path / "prompt.kvc").is_file()
    assert llama.n_tokens == TOKENS


def test_slot_file(
    client: kvcompress.Client,
    server: Any,  # noqa: ANN401
    library: Any,  # noqa: ANN401
    evaluated: tuple[Any, Any, list[int]],
    tmp_path: Path,
) -> None:
    """Written and read by the functions that llama-server calls for its slots."""
    llama, state, answer = evaluated
    llama.load_state(state)
    slot = tmp_path / "slot.bin"
    tokens = (library.llama_token * TOKENS)(*map(int, llama.input_ids[:TOKENS]))
    assert library.llama_state_seq_save_file(llama._ctx.ctx, bytes(slot), 0, tokens, TOKENS)
    widths = [str(width) for width in head_dim_of(llama.metadata)]
    small, again = tmp_path / "slot.kvc", tmp_path / "again.bin"
    command = ["--server", server.target, "compress", str(slot), str(small)]
    assert main([*command, "--head-dim", widths[0], "--codec", "lossless"]) == 0
    assert main(["--server", server.target, "restore", str(small), str(again)]) == 0
    assert again.read_bytes() == slot.read_bytes()

    result = compress(client, slot, small, overwrite=True, head_dim=int(widths[0]), codec="ecsq")
    assert result.report.compression_ratio > 4
    restore(client, small, again, overwrite=True)
    count = ctypes.c_size_t()
    llama.reset()
    llama._ctx.kv_cache_clear()
    assert library.llama_state_seq_load_file(
        llama._ctx.ctx, bytes(again), 0, tokens, TOKENS, ctypes.byref(count)
    )
    assert count.value == TOKENS
    llama.n_tokens = TOKENS
    assert following(llama)[0] == answer[0]


def test_what_is_refused(
    client: kvcompress.Client,
    server: Any,  # noqa: ANN401
    evaluated: tuple[Any, Any, list[int]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Another model, damage, a width that is none, a file of another kind."""
    llama, state, _ = evaluated
    llama.load_state(state)
    small = tmp_path / "small"
    save_state(client, llama, small, codec="int8")
    trained = tmp_path / "trained.gguf"
    shutil.copy(llama.model_path, trained)
    with trained.open("r+b") as file:
        file.seek(trained.stat().st_size // 2)
        file.write(bytes(1_000_000))
    own = {"metadata": llama.metadata, "model_path": llama.model_path}
    for changed in (
        {"metadata": {**llama.metadata, "general.name": "another"}},
        {"model_path": str(trained)},
        {"lora_path": str(trained)},
    ):
        other = SimpleNamespace(**own | changed, n_ctx=llama.n_ctx)
        with pytest.raises(kvcompress.DataLossError):
            load_state(client, other, small)
    damaged = bytearray(small.read_bytes())
    damaged[-100] ^= 1
    with pytest.raises(kvcompress.DataLossError):
        restore(client, bytes(damaged))
    with pytest.raises(ValueError, match="layer_0_key has 192 channels: no whole heads of 63"):
        compress(client, state.llama_state, head_dim=63)
    (tmp_path / "text").write_text("no state")
    command = ["--server", server.target, "compress", str(tmp_path / "text"), str(small)]
    assert main([*command, "--head-dim", "64", "--overwrite"]) == 1
    assert "architecture" in capsys.readouterr().err
