# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.gpu by Triton's interpreter, held against what kv-compress restores."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import claimed_blocks, substituted
from gpu_decoding import (
    GOLDEN,
    ON_HOST,
    PROFILES,
    Restore,
    assert_same,
    bits,
    crafted,
    golden,
    language_patched_once,
    restore,
    torch,
)

from kvcompress import (
    Client,
    CompressionWarning,
    InvalidArgumentError,
    UnimplementedError,
    load_torch,
)
from kvcompress.gpu import Decoder, Encoder, _basis, _decoder
from oracle.crafted_profiles import Group, make_profile
from oracle.server import running_server

__all__ = ["language_patched_once", "restore"]
pytestmark = pytest.mark.slow
ESCAPES = [-129, -128, 127, 128, 3000, -32767, 32767, 32768, -40000, 1 << 20, -(1 << 20)]


def test_the_golden_artefacts_are_these() -> None:
    found = {path.name.partition(".")[0] for path in GOLDEN.glob("*.kvc.safetensors")}
    assert found == set(PROFILES | ON_HOST)


def test_the_tiling_of_devices_decodes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tiles are for the interpreter, and those of devices hold all of a golden cache."""
    monkeypatch.setattr(_decoder, "INTERPRETER_TILING", _basis.DEVICE_TILING)
    artefact, profile = golden("contract")
    decoded = Decoder(profile, "cpu").decode(artefact)
    assert_same(decoded.tensors, load_torch((GOLDEN / "contract.safetensors").read_bytes()))


def test_scratch_is_within_what_was_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted as if nothing was freed: of one part, without the exact path."""
    artefact, profile = golden("contract")
    decoder = Decoder(profile, "cpu")
    cache = load_torch((GOLDEN / "contract.safetensors").read_bytes())
    into = {name: torch.empty_like(tensor) for name, tensor in cache.items()}
    sizes: list[int] = []

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: object, **options: object) -> object:
            made = function(*arguments, **options)
            sizes.append(made.nbytes)
            return made

        return call

    for module, name in ((torch, "zeros"), (torch, "empty")):
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
    decoder.decode(artefact, into)
    assert_same(into, cache)
    assert len(sizes) > 10
    assert sum(sizes) <= decoder.scratch_bytes(artefact)


@pytest.mark.parametrize("name", PROFILES)
def test_a_golden_artefact_decodes_to_its_golden_cache(name: str) -> None:
    artefact, profile = golden(name)
    decoded = Decoder(profile, "cpu").decode(artefact)
    assert_same(decoded.tensors, load_torch((GOLDEN / f"{name}.safetensors").read_bytes()))
    assert decoded.fallbacks == {}


@pytest.mark.parametrize(
    ("dtype", "trellis", "batches"),
    [("F32", False, 2), ("F16", True, 1), ("BF16", False, 1), ("BF16", True, 1)],
)
def test_every_part_of_the_format(
    restore: Restore, dtype: str, trellis: bool, batches: int
) -> None:
    group = crafted(1, dtype, trellis=trellis, batches=batches)
    artefact = group.artefact()
    decoded = Decoder(group.profile, "cpu").decode(artefact)
    assert_same(decoded.tensors, restore(artefact, group.profile))


@pytest.mark.parametrize("trellis", [False, True])
def test_levels_of_any_size_are_exact(restore: Restore, trellis: bool) -> None:
    """Of more than 8 and 16 bits, and rows whose sums 32 bits do not hold."""
    rng = np.random.default_rng(2)
    # Of the last run none has a second plane, and of the first all.
    classes = np.concatenate([np.full(32, 45), np.full(8, 20)])
    quanta = rng.integers(-100, 101, (1, 33, 40))
    quanta[0, 0, : len(ESCAPES)] = ESCAPES
    quanta[0, 1, -3:] = 127, 128, -129
    quanta[0, 17] = rng.integers(-(1 << 20), (1 << 20) + 1, 40)
    quanta[0, 32, :32] = 32000
    exact_sinks = np.float16(rng.standard_normal(2 * 3 * 64)).tobytes()
    profile = make_profile(("k0:2x32:0", "v0:2x32:-"), (("halves", 16),), classes)
    group = Group(
        profile, quanta, "F16", trellis=trellis, sink_tokens=3, exact_sinks=True, sinks=exact_sinks
    )
    artefact = group.artefact()
    decoded = Decoder(profile, "cpu").decode(artefact)
    assert_same(decoded.tensors, restore(artefact, profile))


@pytest.mark.parametrize(("first", "end"), [(0, 1), (0, 3), (16, 18), (5, 21)])
def test_a_range_of_tokens_into_tensors_of_any_strides(
    restore: Restore, first: int, end: int
) -> None:
    group = crafted(3)
    artefact = group.artefact()
    whole = restore(artefact, group.profile)
    names = ["layer_1_value", "layer_0_key"]
    pool = torch.full((end - first, 3, 2, 16), 7, dtype=torch.bfloat16)
    into = {"layer_1_value": pool[:, :, 1].transpose(0, 1).unsqueeze(0)}
    decoded = Decoder(group.profile, "cpu").decode(
        artefact, into, tensors=names, tokens=(first, end)
    )
    expected = {name: whole[name][:, :, first:end] for name in whole if name in names}
    assert_same(decoded.tensors, expected)
    assert decoded.tensors["layer_1_value"].data_ptr() == into["layer_1_value"].data_ptr()
    assert bool((pool[:, :, 0] == 7).all())


def test_a_range_of_tokens_into_slots_of_a_paged_cache(restore: Restore) -> None:
    """Of sinks, exceptions, and rows that the exact path decodes, too."""
    group = crafted(3)
    group.quanta[0, 4] = 1 << 20
    whole = restore(group.artefact(), group.profile)
    slots = torch.tensor([9, -1, 30, *range(10, 25), 2, 0], dtype=torch.int32)
    pages = {
        name: torch.full((31, 2, *tensor.shape[1::2]), 7, dtype=tensor.dtype)
        for name, tensor in whole.items()
    }
    into = {name: each[:, 1] for name, each in pages.items()}
    decoder = Decoder(group.profile, "cpu")
    decoded = decoder.decode(group.artefact(), into, tokens=(0, 20), slots=slots)
    for name, tensor in whole.items():
        expected = torch.full_like(into[name], 7)
        for token, slot in enumerate(slots.tolist()):
            if slot >= 0:
                expected[slot] = tensor[0, :, token]
        assert torch.equal(bits(decoded.tensors[name]), bits(expected)), name
        assert bool((pages[name][:, 0] == 7).all())


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        ([0.0] * 60, "int32 or int64"),
        ([0] * 60, "each there once"),
        ([-2, *range(59)], "from 0 on"),
        (list(range(59)), "59 slots for the 60 tokens"),
        (list(range(1, 61)), "of 61 slots at least"),
    ],
)
def test_slots_that_do_not_fit(slots: list[int], words: str) -> None:
    artefact, profile = golden("cache")
    into = {"layer_0_key": torch.empty(60, 2, 16, dtype=torch.bfloat16)}
    decoder = Decoder(profile, "cpu")
    with pytest.raises(InvalidArgumentError, match=words):
        decoder.decode(artefact, into, tensors=list(into), slots=torch.tensor(slots))
    with pytest.raises(InvalidArgumentError, match="slots need a tensor of `into`"):
        decoder.decode(artefact, into, slots=torch.arange(60))


def test_blocks_are_decoded_in_parts_where_scratch_is_short(restore: Restore) -> None:
    group = crafted(4)
    artefact = torch.frombuffer(bytearray(group.artefact()), dtype=torch.uint8)
    small, large = (Decoder(group.profile, "cpu", scratch=size) for size in (1, 1 << 20))
    assert small.scratch_bytes(artefact) < large.scratch_bytes(artefact) < 1 << 20
    assert_same(small.decode(artefact).tensors, restore(group.artefact(), group.profile))


def test_arguments_that_do_not_fit() -> None:
    artefact, profile = golden("cache")
    decoder = Decoder(profile, "cpu")
    with pytest.raises(InvalidArgumentError, match="TRITON_INTERPRET"):
        Decoder(profile, "cuda")
    with pytest.raises(InvalidArgumentError, match="no tensor 'absent'"):
        decoder.decode(artefact, tensors=["absent"])
    with pytest.raises(InvalidArgumentError, match="not within the 60"):
        decoder.decode(artefact, tokens=(50, 61))
    narrow = {"layer_0_key": torch.empty(1, 2, 59, 16, dtype=torch.bfloat16)}
    with pytest.raises(InvalidArgumentError, match=r"needs \[1, 2, 60, 16\]"):
        decoder.decode(artefact, narrow)
    with pytest.raises(InvalidArgumentError, match="which is not decoded"):
        decoder.decode(artefact, narrow, tensors=["layer_1_key"])


def test_blocks_of_the_guide(
    bin_dir: Path,
    restore: Restore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    group = crafted(7)
    artefact = group.artefact()
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "model.profile").write_bytes(group.profile)
    (tmp_path / "document.kvc.safetensors").write_bytes(artefact)
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir))
    monkeypatch.chdir(tmp_path)
    whole = restore(artefact, group.profile)
    pages = {name: torch.empty_like(each[0]).transpose(0, 1) for name, each in whole.items()}
    names = {"artefact": artefact, "pages": pages, "slots": torch.arange(21)}
    decode, encode = claimed_blocks("gpu")
    exec(substituted(decode, cuda="cpu"), names)
    assert capsys.readouterr().out == "torch.Size([1, 2, 21, 12]) {}\n"
    part: Any = names["part"]
    assert part.tensors.keys() == {"layer_0_key", "layer_0_value"}
    assert torch.equal(pages["layer_1_value"].transpose(0, 1), whole["layer_1_value"][0])
    exec(substituted(encode, cuda="cpu"), names)
    encoded: Any = names["encoded"]
    assert encoded.report.tensor_count == 4
    size = len(Encoder("int4:64", "cpu").encode(whole, labels={"model": "mine"}).artefact)
    assert capsys.readouterr().out.endswith(f" {size}\n")


@pytest.fixture(scope="module")
def profiled(bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a server that has the golden profile."""
    folder = tmp_path_factory.mktemp("profiles")
    shutil.copy(GOLDEN / "tiny.profile", folder)
    with (
        running_server(bin_dir, "--profile-directory", str(folder)) as server,
        Client(server.target, timeout=60) as client,
    ):
        yield client


def test_what_the_device_does_not_decode_falls_back_and_is_told(profiled: Client) -> None:
    rng = np.random.default_rng(0)
    shape = (1, 2, 20, 16)
    source = {
        f"layer_{layer}_{role}": rng.standard_normal(shape).astype(
            np.float64 if layer > 1 else np.float32
        )
        for layer in range(5)
        for role in ("key", "value")
    }
    with pytest.warns(CompressionWarning, match="PROFILE_POOR_FIT"):
        result = profiled.compress(source, codec="klt:high", profile="tiny")
    assert result.artefact is not None
    expected = profiled.decompress(result.artefact, tokens=(2, 9)).torch_tensors()
    into = {"layer_4_key": torch.empty(1, 2, 7, 16, dtype=torch.float64)}
    decoder = Decoder(GOLDEN / "tiny.profile", "cpu", client=profiled)
    pages = {name: torch.empty(7, 2, 16, dtype=each.dtype) for name, each in expected.items()}
    decoder.decode(result.artefact, pages, tokens=(2, 9), slots=torch.arange(6, -1, -1))
    for name, each in expected.items():
        assert torch.equal(pages[name].flip(0).transpose(0, 1), each[0])
    decoded = decoder.decode(result.artefact, into, tokens=(2, 9))
    assert {name: tensor.dtype for name, tensor in decoded.tensors.items()} == {
        name: tensor.dtype for name, tensor in expected.items()
    }
    assert all(torch.equal(decoded.tensors[name], tensor) for name, tensor in expected.items())
    assert decoded.tensors["layer_4_key"] is into["layer_4_key"]
    reasons = decoded.fallbacks
    assert list(reasons) == [name for name in source if int(name[6]) in (2, 3)]
    assert reasons["layer_2_key"] == "F64 is not one of F32, F16, BF16"
    with pytest.raises(UnimplementedError, match="give the Decoder a client") as caught:
        Decoder(GOLDEN / "tiny.profile", "cpu").decode(result.artefact)
    assert caught.value.tensor == "layer_2_key"


def test_lossless_with_a_profile_falls_back(profiled: Client) -> None:
    artefact, profile = golden("lossless")
    cache = load_torch((GOLDEN / "lossless.safetensors").read_bytes())
    into = {name: torch.empty_like(tensor) for name, tensor in cache.items()}
    decoded = Decoder(profile, "cpu", client=profiled).decode(artefact, into)
    assert_same(into, cache)
    reason = "lossless-profile:high is decoded on the host"
    assert decoded.fallbacks == dict.fromkeys(cache, reason)
    part = Decoder(profile, "cpu", client=profiled).decode(
        artefact, tensors=["layer_2_value"], tokens=(3, 7)
    )
    assert_same(part.tensors, {"layer_2_value": cache["layer_2_value"][:, :, 3:7]})
    with pytest.raises(UnimplementedError, match="is decoded on the host; give the") as caught:
        Decoder(profile, "cpu").decode(artefact)
    assert caught.value.tensor == "layer_0_key"


def test_a_layout_falls_back(profiled: Client) -> None:
    _, profile = golden("cache")
    cache = load_torch((GOLDEN / "cache.safetensors").read_bytes())
    stacked = torch.stack(
        [
            torch.cat([cache[f"layer_{layer}_{role}"][0, head] for head in range(2)], -1)
            for role in ("key", "value")
            for layer in range(4)
        ]
    ).reshape(2, 4, 60, 32)
    result = profiled.compress(
        {"kv": stacked}, codec="klt:high", profile="tiny", layout="2ltd:heads=2"
    )
    assert result.artefact is not None
    decoded = Decoder(profile, "cpu", client=profiled).decode(result.artefact)
    assert_same(decoded.tensors, profiled.decompress(result.artefact).torch_tensors())
    assert decoded.fallbacks == {"kv": "a tensor of its group is in a layout"}
