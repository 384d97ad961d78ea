# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Names crossed with layouts: declared, a cache is worth the same; else there is a warning."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from kv_compress import Run, bits, succeed

from kvcompress import payload
from oracle import source
from oracle.arranged import Names, arrange, arrangements
from oracle.fixtures import SAMPLE

LAYERS, HEADS, TOKENS, DIM = 30, 3, 96, 64
REPEATS = 3  # of the sample's tokens: enough for klt, and the header is small next to the data
LAYOUTS = arrangements(HEADS)

NAMES = {
    "ours": Names(),
    "exported": Names(
        lambda layer, part: f"past_key_values.{layer}.{part}", lambda layer: f"block.{layer}"
    ),
    "vLLM": Names(
        lambda layer, part: f"model.layers.{layer}.self_attn.attn.{part}_cache",
        lambda layer: f"model.layers.{layer}.self_attn.attn",
    ),
    "SGLang": Names(
        lambda layer, part: f"{part[0]}_buffer.{layer}", lambda layer: f"kv_buffer.{layer}"
    ),
    "ONNX": Names(lambda layer, part: f"past_{part}_{layer}", lambda layer: f"kv_cache.{layer}"),
    "llama.cpp": Names(
        lambda layer, part: f"cache_{part[0]}_l{layer}", lambda layer: f"cache_kv_l{layer}"
    ),
}
CROSSED = ("bhtd", "bthd", "thd", "td", "paged", "paged2", "pagedf", "2ltd", "ltf")


@pytest.fixture(scope="module")
def cache() -> npt.NDArray[np.uint16]:
    """The sample as [2, layers, heads, tokens, head_dim], its tokens several times over."""
    tensors = bits(SAMPLE)
    parts = [
        np.frombuffer(tensors[f"layer_{layer}_{part}"][2], np.uint16)
        for part in ("key", "value")
        for layer in range(LAYERS)
    ]
    once = np.array(parts).reshape(2, LAYERS, HEADS, TOKENS, DIM)
    return np.concatenate([once] * REPEATS, axis=3)


def write(path: Path, cache: npt.NDArray[np.uint16], layout: str, names: Names) -> Path:
    """Writes the cache in a layout, under these names."""
    path.write_bytes(source.write(arrange(cache, LAYOUTS[layout], "BF16", names)))
    return path


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory, cache: npt.NDArray[np.uint16]) -> Path:
    """The cache as a file in the layout of codecs, under our names."""
    return write(tmp_path_factory.mktemp("usual") / "cache", cache, "bhtd", Names())


@pytest.mark.parametrize("scheme", NAMES)
@pytest.mark.parametrize("layout", CROSSED)
def test_every_scheme_in_every_layout(
    run: Run, tmp_path: Path, cache: npt.NDArray[np.uint16], usual: Path, layout: str, scheme: str
) -> None:
    """The same ratio within 1 % where the layout is declared, and a bound for keys binds."""
    path = write(tmp_path / "cache", cache, layout, NAMES[scheme])
    declared = ("-input", path, "-layout", LAYOUTS[layout].text)
    answer = succeed(run(*declared, "-metrics-only", "-codec", "ecsq"))
    expected = succeed(run("-input", usual, "-metrics-only", "-codec", "ecsq"))
    assert 0.99 < answer["compression_ratio"] / expected["compression_ratio"] < 1.01
    assert answer["rmse"] == pytest.approx(expected["rmse"], rel=1e-6)
    assert answer["warnings"] == []
    assert answer["roles"] == {"keys": LAYERS, "values": LAYERS, "neither": 0}

    bound = ("-codec", "int4", "-key-thresholds", "min_snr_db=60")
    assert run(*declared, "-output", "out", *bound).returncode == 2
    assert not (tmp_path / "out").exists()

    if layout == "bhtd":
        return
    undeclared = succeed(run("-input", path, "-metrics-only", "-codec", "int4"))
    (warning,) = [each for each in undeclared["warnings"] if each["code"] == "LAYOUT_SUSPECT"]
    assert warning["message"].endswith(LAYOUTS[layout].likely)


@pytest.mark.parametrize("codec", ["klt:contract", "klt:ultra"])
@pytest.mark.parametrize("layout", [each for each in LAYOUTS if each != "bhtd"])
def test_klt_gives_the_payloads_of_the_usual_layout(
    run: Run, tmp_path: Path, cache: npt.NDArray[np.uint16], usual: Path, layout: str, codec: str
) -> None:
    """To the bit: but of values that do not come just after the keys of their layer.

    Those do not learn from them which tokens matter, and cost about the same.
    """
    few = cache[:, :4]
    path = write(tmp_path / "cache", few, layout, Names())
    plain = write(tmp_path / "plain", few, "bhtd", Names())
    asked = ("-codec", codec, "-force", "-output", "out")
    expected = succeed(run("-input", plain, *asked))
    wanted = payload.read_header((tmp_path / "out").read_bytes()).tensors
    modes = [(tmp_path / "out").read_bytes()[each.begin] for each in wanted]
    assert modes.count(2) > len(modes) / 2
    answer = succeed(run("-input", path, "-layout", LAYOUTS[layout].text, *asked))
    got = payload.read_header((tmp_path / "out").read_bytes()).tensors
    assert 0.99 < answer["compression_ratio"] / expected["compression_ratio"] < 1.02
    digests = {(each.role, each.layer): each.digest for each in wanted}
    sizes = {(each.role, each.layer): each.end - each.begin for each in wanted}
    assert len(got) == len(wanted)
    told = layout != "2ltd" or codec == "klt:contract"
    for each in got:
        if told or each.role == "k":
            assert each.digest == digests[each.role, each.layer]
            assert each.end - each.begin == sizes[each.role, each.layer]
    total = sum(each.end - each.begin for each in got)
    assert 0.99 < total / sum(sizes.values()) < 1.01
