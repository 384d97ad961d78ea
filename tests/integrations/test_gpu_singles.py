# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Payloads that kvcompress.gpu decodes one by one, held against what kv-compress restores."""

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import xxhash
from gpu_decoding import GOLDEN, assert_same, bits, language_patched_once, torch

from kvcompress import Client, InvalidArgumentError, payload
from kvcompress.gpu import Decoder
from oracle.source import Tensor, write

__all__ = ["language_patched_once"]
pytestmark = pytest.mark.slow
VERSION_1, SERVICE = (GOLDEN.parent / name for name in ("v1", "v1-service"))
CODECS = ("int4-32", "int4-64", "int4-128", "int8-64", "lossless")
CODED = ("ecsq-", "rope-ecsq-", "latent-ecsq-")
TYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "F64": np.float64}
TYPES |= {"F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2}


def as_file(tensors: dict[str, Any], artefact: bytes) -> bytes:
    """The file of tensors that were decoded from an artefact."""
    header = payload.read_header(artefact)
    types = {entry.view[0].name if entry.view else entry.name: entry for entry in header.tensors}
    rows = [
        Tensor(name, types[name].dtype, tuple(each.shape), raw(each))
        for name, each in tensors.items()
    ]
    return write(rows, header.metadata)


def raw(tensor: Any) -> bytes:  # noqa: ANN401
    """The bytes of the elements."""
    flat = tensor.contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy()) if len(flat) else b""


@pytest.mark.parametrize("codec", CODECS)
def test_golden_artefacts_of_one_form(codec: str) -> None:
    """But for some of `lossless`, whose planes are like those of others; tests/gpu/run has all."""
    index = json.loads((VERSION_1 / "index.json").read_text())
    names = [name for name in index if name.endswith(f".{codec}.safetensors")]
    assert len(names) > 15
    decoder = Decoder(device="cpu")
    for name in names:
        if codec == "lossless" and name.partition(".")[0] in ("heads", "f16", "f32", "f64"):
            continue
        artefact = (VERSION_1 / name).read_bytes()
        decoded = decoder.decode(artefact)
        assert decoded.fallbacks == {}
        file = as_file(decoded.tensors, artefact)
        assert xxhash.xxh3_128_hexdigest(file) == index[name]["restored_xxh3_128"], name


def test_golden_artefacts_of_ecsq() -> None:
    """Of each the smallest tensors: all of one take the interpreter half a minute."""
    index = json.loads((SERVICE / "index.json").read_text())
    names = [name for name in index if name.startswith(CODED) and "zstd" not in name]
    assert len(names) > 9
    for name in names:
        artefact = (SERVICE / name).read_bytes()
        arrays = payload.read(artefact)
        small = sorted(arrays, key=lambda each: arrays[each].size)
        small = [each for each in small if 100 < arrays[each].size < 300] or small[:1]
        decoded = Decoder(device="cpu").decode(artefact, tensors=small)
        for each in small:
            assert raw(decoded.tensors[each]) == arrays[each].tobytes(), (name, each)


def cache(tokens: int, *, outliers: bool = True) -> dict[str, Any]:
    """Keys and values of every type, two heads of 8 channels, some with large elements."""
    rng = np.random.default_rng(tokens)
    tensors = {}
    for layer, dtype in enumerate(TYPES.values()):
        for role in ("key", "value"):
            values = rng.standard_normal((1, 2, tokens, 8)) + 2 * rng.standard_normal(8)
            if outliers:
                values.reshape(-1)[[5, 77]] = 90, -300
            tensors[f"layer_{layer}_{role}"] = values.astype(dtype)
    return tensors


@pytest.mark.parametrize(
    "codec", ["ecsq:contract", "ecsq:0.05,8", "klt:1,1,2", "int4:32", "lossless"]
)
def test_every_type(client: Client, codec: str) -> None:
    artefact = client.compress(cache(11), codec=codec).artefact or b""
    decoded = Decoder(device="cpu").decode(artefact)
    expected = client.decompress(artefact).torch_tensors()
    assert decoded.fallbacks == {}
    assert {name: raw(each) for name, each in decoded.tensors.items()} == {
        name: raw(each) for name, each in expected.items()
    }


@pytest.mark.parametrize("codec", ["ecsq:contract", "int8:32", "int4:32", "lossless"])
def test_ranges_slots_strides_and_little_scratch(client: Client, codec: str) -> None:
    """Of tokens within blocks, and of blocks that are left out."""
    rng = np.random.default_rng(3)
    tokens = 1030 if codec.startswith("int") else 30
    source = {
        f"layer_0_{role}": rng.standard_normal((1, 3, tokens, 8)).astype(np.float16)
        for role in ("key", "value")
    }
    artefact = client.compress(source, codec=codec).artefact or b""
    whole = client.decompress(artefact).torch_tensors()
    decoder = Decoder(device="cpu", scratch=1)
    decoded = decoder.decode(artefact, tokens=(3, 21), tensors=["layer_0_value"])
    assert_same(decoded.tensors, {"layer_0_value": whole["layer_0_value"][:, :, 3:21]})
    pages = {name: torch.full((2, 40, 3, 8), 7, dtype=torch.float16) for name in source}
    into = {name: each[1] for name, each in pages.items()}
    slots = torch.tensor([39, -1, *range(1, 12)])
    decoder.decode(artefact, into, tokens=(17, 30), slots=slots)
    for name, each in into.items():
        expected = torch.full_like(each, 7)
        for token, slot in enumerate(slots.tolist()):
            if slot >= 0:
                expected[slot] = whole[name][0, :, 17 + token]
        assert torch.equal(bits(each), bits(expected)), name
        assert bool((pages[name][0] == 7).all())


LAYOUTS = {"2ltd:heads=2": (2, 2, 12, 16), "phs(2d)": (3, 2, 4, 16), "mla": (12, 80)}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_and_ranges_of_them(client: Client, layout: str) -> None:
    values = np.random.default_rng(4).standard_normal(LAYOUTS[layout]).astype(np.float32)
    artefact = client.compress({"kv": values}, codec="int8:32", layout=layout).artefact or b""
    decoder = Decoder(device="cpu")
    assert_same(decoder.decode(artefact).tensors, client.decompress(artefact).torch_tensors())
    expected = client.decompress(artefact, tokens=(4, 8)).torch_tensors()
    strided = torch.empty(*expected["kv"].shape, 2)
    decoded = decoder.decode(artefact, {"kv": strided[..., 1]}, tokens=(4, 8))
    assert decoded.fallbacks == {}
    assert_same(decoded.tensors, expected)
    refused = "in a layout" if layout == "mla" else "a layout with tokens first"
    with pytest.raises(InvalidArgumentError, match=refused):
        decoder.decode(artefact, {"kv": strided}, slots=torch.arange(12))
    if layout.startswith("p"):
        with pytest.raises(InvalidArgumentError, match="a page of 4 tokens"):
            decoder.decode(artefact, tokens=(4, 7))


@pytest.mark.parametrize("codec", ["int8:32", "ecsq", "klt", "lossless", "int4-kivi"])
def test_slots_of_latents(client: Client, codec: str) -> None:
    """Into pages with gaps between tokens; the client restores what the device does not."""
    values = np.random.default_rng(5).standard_normal((300, 80)).astype(np.float32)
    artefact = client.compress({"kv": values}, codec=codec, layout="t(d+r):d=64").artefact or b""
    whole = client.decompress(artefact, tokens=(17, 290)).torch_tensors()["kv"]
    slots = torch.randperm(400)[: len(whole)]
    slots[5] = -1
    pages = torch.full((400, 90), 7.0)
    decoded = Decoder(device="cpu", client=client).decode(
        artefact, {"kv": pages[:, 3:83]}, tokens=(17, 290), slots=slots
    )
    assert list(decoded.fallbacks) == ["kv"] * (codec == "int4-kivi")
    expected = torch.full_like(pages, 7)
    expected[slots[slots >= 0], 3:83] = whole[slots >= 0]
    assert torch.equal(pages, expected)


def test_tensors_without_tokens(client: Client) -> None:
    source = {"a": np.ones(70, np.float32), "b": np.ones((3, 5), np.float16)}
    artefact = client.compress(source, codec="int4:32").artefact or b""
    decoder = Decoder(device="cpu")
    with pytest.raises(InvalidArgumentError, match="leave `tokens` out"):
        decoder.decode(artefact, tokens=(0, 1))
    into = {"a": torch.empty(70, 2)[:, 0]}
    with pytest.raises(InvalidArgumentError, match="C order"):
        decoder.decode(artefact, into)
    assert bool((decoder.decode(artefact).tensors["b"] == 1).all())


def assert_scratch_is_announced(artefact: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requires that decoding takes no more than was said, as if nothing was freed."""
    decoder = Decoder(device="cpu")
    announced, into = decoder.scratch_bytes(artefact), decoder.decode(artefact).tensors
    sizes = []
    for name in ("zeros", "empty", "from_numpy"):
        made = getattr(torch, name)

        def counted(*arguments: object, made: Any = made, **options: object) -> object:  # noqa: ANN401
            tensor = made(*arguments, **options)
            sizes.append(tensor.nbytes)
            return tensor

        monkeypatch.setattr(torch, name, counted)
    decoder.decode(artefact, into)
    assert 0 < sum(sizes) <= announced


@pytest.mark.parametrize("codec", ["ecsq:contract", "int8:32", "lossless"])
def test_scratch_is_within_what_was_announced(
    client: Client, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    artefact = client.compress(cache(9), codec=codec).artefact or b""
    assert_scratch_is_announced(artefact, monkeypatch)


def test_integers_of_very_different_sizes(client: Client) -> None:
    """Which are launches of their own: programs are as many as the largest needs."""
    rng = np.random.default_rng(11)
    shapes = [(1, 2, 70, 70), (1, 1, 1, 1), (3,), (1, 3, 1500, 2), (0, 2), (1, 1, 65, 64)]
    tensors = {
        f"t{number}": torch.from_numpy(rng.standard_normal(shape).astype(np.float16))
        for number, shape in enumerate(shapes)
    }
    result = client.compress(tensors, codec="int4:32")
    found = Decoder(device="cpu").decode(result.artefact or b"").tensors
    assert_same(found, client.decompress(result.artefact or b"").torch_tensors())
