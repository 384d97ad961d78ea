# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The sample in other layouts: declared as good as ever, and else a warning."""

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kv_compress import Run, bits, refuse, succeed

from kvcompress import Client, CompressionWarning
from oracle import source
from oracle.fixtures import SAMPLE

LAYERS, HEADS, TOKENS, DIM = 30, 3, 96, 64


def parts() -> np.ndarray[tuple[int, ...], np.dtype[np.uint16]]:
    """The sample as [2, layers, heads, tokens, head_dim]."""
    tensors = bits(SAMPLE)
    return np.array(
        [
            [
                np.frombuffer(tensors[f"layer_{layer}_{part}"][2], np.uint16).reshape(
                    HEADS, TOKENS, DIM
                )
                for layer in range(LAYERS)
            ]
            for part in ("key", "value")
        ]
    )


def in_layout(path: Path, layout: str) -> Path:
    """The sample as a file in a layout: a tensor for each layer and role, or one for all."""
    cache = parts()
    stacked = cache.transpose(0, 1, 3, 2, 4)  # 2 l t h d
    tensors: dict[str, np.ndarray[Any, np.dtype[np.uint16]]] = {}
    if layout.startswith("2ltd"):
        tensors["cache"] = stacked.reshape(2, LAYERS, TOKENS, HEADS * DIM)
    elif layout.startswith("ltf"):
        tensors["cache"] = stacked.transpose(1, 2, 3, 0, 4).reshape(LAYERS, TOKENS, -1)
    else:
        for layer in range(LAYERS):
            for role, part in enumerate(("key", "value")):
                one = stacked[role, layer]  # t h d
                tensors[f"layer_{layer}_{part}"] = {
                    "bthd": one[None],
                    "thd": one,
                    "td": one.reshape(TOKENS, -1),
                    "paged": one.reshape(-1, 16, HEADS, DIM).transpose(0, 2, 1, 3),
                }[layout.partition(":")[0]]
    path.write_bytes(
        source.write(
            source.Tensor(name, "BF16", values.shape, values.tobytes())
            for name, values in tensors.items()
        )
    )
    return path


@pytest.mark.parametrize(
    "layout", ["bthd", "thd", "td:heads=3", "paged", "2ltd:heads=3", "ltf:head_dim=64"]
)
def test_declared_it_is_as_good_as_ever(run: Run, tmp_path: Path, layout: str) -> None:
    """Else there is a warning, and the likely layout is named."""
    cache = in_layout(tmp_path / "cache", layout)
    usual = succeed(run("-input", SAMPLE, "-metrics-only", "-codec", "ecsq"))
    asked = ("-input", cache, "-output", "out", "-codec", "ecsq", "-layout", layout, "-verbose")
    answer = succeed(run(*asked))
    # Of fewer tensors the header is shorter.
    assert 0.99 < answer["compression_ratio"] / usual["compression_ratio"] < 1.02
    assert answer["rmse"] == pytest.approx(usual["rmse"], rel=1e-6)
    assert answer["warnings"] == []
    assert answer["roles"] == {"keys": 30, "values": 30, "neither": 0}
    assert {each["layer"] for each in answer["tensors"]} == set(range(LAYERS))
    assert all(each["shape"] == [1, HEADS, TOKENS, DIM] for each in answer["tensors"])
    info = succeed(run("-info", "out"))
    assert {each["layout"] for each in info["tensors"]} == {answer["tensors"][0]["layout"]}
    succeed(run("-verify", "out"))

    done = run("-input", cache, "-metrics-only", "-codec", "int4")
    (warning,) = [each for each in succeed(done)["warnings"] if each["code"] == "LAYOUT_SUSPECT"]
    assert b"[LAYOUT_SUSPECT]\n" in done.stderr
    likely = "phsd" if layout == "paged" else re.sub("=.*", "=N", layout)
    assert warning["message"].endswith(likely.replace("head_dim", "heads"))


def test_info_names_the_declared_and_the_likely_layout(run: Run, tmp_path: Path) -> None:
    usual = succeed(run("-info", SAMPLE))
    assert usual["layout"] is None
    assert {each["likely_layout"] for each in usual["tensors"]} == {None}
    for layout, likely in {
        "thd": "thd",
        "td:heads=3": "td:heads=N",
        "2ltd": "2ltd:heads=N",
    }.items():
        cache = in_layout(tmp_path / "cache", layout)
        told = succeed(run("-info", cache))
        found = [each["likely_layout"] for each in told["tensors"]]
        assert found.count(likely) >= len(found) * 5 / 6
    tensors = source.read(cache.read_bytes())[0]
    cache.write_bytes(source.write(tensors, {"layout": "2ltd:heads=3"}))
    told = succeed(run("-info", cache))
    assert (told["layout"], told["tensors"][0]["likely_layout"]) == ("2ltd:heads=3", "2ltd:heads=N")
    succeed(run("-input", cache, "-output", "out"))
    (declared,) = {each["layout"] for each in succeed(run("-info", "out"))["tensors"]}
    assert declared == "2lt(hd):h=3"


def test_it_comes_back_as_it_was(run: Run, tmp_path: Path) -> None:
    cache = in_layout(tmp_path / "cache", "ltf")
    succeed(run("-input", cache, "-output", "out", "-codec", "lossless", "-layout", "ltf:heads=3"))
    succeed(run("-decompress", "-input", "out", "-output", "back"))
    assert bits(tmp_path / "back") == bits(cache)
    refuse(
        run("-input", cache, "-output", "none", "-layout", "ltf"),
        r"dimension 2 \(384\) holds heads and head_dim; say how many, as in ltf:heads=8",
    )
    refuse(run("-input", cache, "-output", "none", "-layout", "nhd"), "there is no axis .*n")


def test_python_warns(client: Client, tmp_path: Path) -> None:
    cache = in_layout(tmp_path / "cache", "thd")
    with pytest.warns(CompressionWarning, match="^LAYOUT_SUSPECT: .* likely thd"):
        client.measure(cache, codec="int4")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client.measure(cache, codec="int4", layout="thd")
        client.measure(SAMPLE, codec="int4")
