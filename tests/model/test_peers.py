# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Codecs of others, and what runs their kernels."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("optimum.quanto", reason="optimum-quanto is not installed")

import torch
from safetensors.torch import load_file

import codec_study
import task_study
from measure import peers, triton_grid
from measure.engine_peers import Pair, coded
from measure.profile_bench import FileRow
from oracle.fixtures import SAMPLE

KERNELS = Path(__file__).parent / "grid_kernels.py"


def kernels() -> ModuleType:
    """Returns the kernels of grid_kernels.py, with the stand-in for Triton."""
    triton, tl = ModuleType("triton"), ModuleType("triton.language")
    tl.constexpr = int  # type: ignore[attr-defined]  # vLLM's own stand-ins have it
    triton_grid.install(triton, tl)
    spec = importlib.util.spec_from_file_location("kernels_on_a_grid", KERNELS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "triton", triton)
        patch.setitem(sys.modules, "triton.language", tl)
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_grid_does_what_tritons_interpreter_does(tmp_path: Path, dtype: torch.dtype) -> None:
    """The bytes that kernels write, and what they read from them."""
    pytest.importorskip("triton", reason="triton is not installed")
    torch.manual_seed(0)
    values = torch.randn(5, 3, 12).to(dtype)
    torch.save(values, tmp_path / "values")
    subprocess.run(
        [sys.executable, KERNELS, tmp_path / "values", tmp_path / "written"],
        check=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    wanted, module = torch.load(tmp_path / "written"), kernels()
    found = module.run(values, module)
    assert len(wanted["written"].unique()) > 50
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name


def test_fp8_is_rounded_to_the_nearest_and_saturates() -> None:
    target = torch.zeros(4, dtype=torch.float8_e4m3fn)
    values = torch.tensor([[1.0, 1.07, -1000.0, 448.0]])
    triton_grid.store(
        triton_grid.Pointer(target, triton_grid.Value(torch.arange(4)[None])),
        triton_grid.Value(values),
    )
    assert target.float().tolist() == [1.0, 1.125, -448.0, 448.0]


def test_programs_may_not_take_different_branches() -> None:
    with pytest.raises(NotImplementedError, match="different branches"):
        bool(triton_grid.Value(torch.tensor([0, 1])))


def test_a_codec_of_an_engine_sees_tokens_before_heads() -> None:
    cache = load_file(SAMPLE)
    seen: list[Pair] = []

    def codec(layers: list[Pair]) -> tuple[list[Pair], int]:
        seen.extend(layers)
        return [(keys, values * 2) for keys, values in layers], 7

    restored, size = coded(codec, cache)
    assert size == 7
    assert seen[0][0].shape == (96, 3, 64)
    assert torch.equal(restored["layer_3_key"], cache["layer_3_key"])
    assert torch.equal(restored["layer_3_value"], cache["layer_3_value"] * 2)


def test_peers_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engines are asked for only if a name is none of those in this environment."""
    monkeypatch.setattr(peers, "engine_rows", lambda: pytest.fail("started"))
    assert [row.name for row in peers.named(["hqq 4-bit", "fp8"])] == ["hqq 4-bit", "fp8"]
    row = peers.EngineRow("vLLM fp8", "vllm", "vllm 1")
    monkeypatch.setattr(peers, "engine_rows", lambda: [row])
    assert peers.named(["vLLM fp8"]) == [row]
    with pytest.raises(ValueError, match=r"no peers \['vLLM fp7'\]; there are: quanto 4-bit, "):
        peers.named(["vLLM fp7"])


def test_a_file_of_a_study_is_counted_whole(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir))
    cache = load_file(SAMPLE)
    found = FileRow("lossless", task_study.version_of(), ["-codec", "lossless"]).code(SAMPLE, cache)
    assert found.elements == 2211840 // 2
    assert 1_400_000 < found.bytes < 1_600_000
    assert all(torch.equal(found.cache[name], tensor) for name, tensor in cache.items())


def test_the_command_of_a_study_repeats_it() -> None:
    """With the name of a profile, not its folder."""
    parsed = codec_study.parse(["--windows", "8", "--profile", "/a/model.profile", "--engines"])
    words = "validation/codec_study.py --windows 8 --profile model.profile --engines"
    assert codec_study.command(parsed) == words


def test_names_of_our_codecs_are_set_as_code() -> None:
    def found(**by: str) -> dict[str, object]:
        return {"bytes": 50, "cases": [{"task": "table", "right": 1.0}], **by}

    codecs = {
        "uncompressed": found(),
        "int4": found(by="KV Compress"),
        "hqq 4-bit": found(by="hqq"),
    }
    metrics = [task_study.Metric("table", "table")]
    lines = list(task_study.table([{"codecs": codecs}] * 2, metrics, task_study.accuracy, 1))
    names = [line.split(" | ")[0] for line in lines[2:]]
    assert names == ["| uncompressed", "| `int4`", "| hqq 4-bit"]
