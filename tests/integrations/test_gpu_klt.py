# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`klt` without a profile, decoded by kvcompress.gpu in its principal components."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from gpu_decoding import GOLDEN, Restore, assert_same, bits, language_patched_once, restore, torch
from test_gpu_singles import TYPES, assert_scratch_is_announced, raw
from test_gpu_singles_damage import NAME, decoded, restored, sealed

from kvcompress import Client, payload
from kvcompress.gpu import Decoder
from kvcompress.gpu import _klt_kernels as kernels
from kvcompress.payload import PayloadError
from kvcompress.payload._klt import _basis
from oracle.encoder import seal

__all__ = ["language_patched_once", "restore"]
pytestmark = pytest.mark.slow
# Tensors of golden artefacts: two of each, with two blocks in some. tests/gpu/run has all.
CHOSEN = {
    "klt-0.9,0.9,64,0.45-best": ("layer_0_other", "layer_1_value"),
    "klt-1,1,5": ("layer_0_key", "layer_0_value"),
    "klt-contract-best": ("layer_0_key", "layer_0_value"),
    "klt-contract": ("layer_0_other", "layer_0_value"),
    "klt-high": ("layer_0_key", "layer_1_key"),
    "klt-ultra": ("layer_0_key", "layer_0_value"),
    "latent-klt-0.8,0.8,16": ("layers.0.both", "layers.0.rotated"),
    "rope-klt-0.8,0.8,16": ("layer_0_key", "layer_3_key"),
}


def test_the_golden_artefacts_are_these() -> None:
    found = {path.stem for path in (GOLDEN.parent / "v1-service").glob("*klt*")}
    assert found == set(CHOSEN)


@pytest.mark.parametrize("name", CHOSEN)
def test_golden_artefacts(name: str) -> None:
    """Equal to what NumPy's reader gives, which other tests hold against the restored file."""
    artefact = (GOLDEN.parent / "v1-service" / f"{name}.safetensors").read_bytes()
    arrays = payload.read(artefact)
    found = Decoder(device="cpu").decode(artefact, tensors=CHOSEN[name])
    assert found.fallbacks == {}
    for each, tensor in found.tensors.items():
        assert raw(tensor) == arrays[each].tobytes(), each


def low_rank(
    shape: tuple[int, int, int, int], seed: int, dtype: type[Any] = np.float16
) -> npt.NDArray[Any]:
    """A tensor of two strong components, and one outlier, which is an exception."""
    rng = np.random.default_rng(seed)
    batches, heads, tokens, channels = shape
    width = batches * heads * channels
    values = 4 * rng.standard_normal((tokens, 2)) @ rng.standard_normal((2, width))
    values += 0.3 * rng.standard_normal((tokens, width))
    values = values.reshape(tokens, batches, heads, channels).transpose(1, 2, 0, 3).copy()
    values[0, 0, tokens // 2, 1] = 300
    return values.astype(dtype)


def modes(artefact: bytes) -> set[int]:
    """The modes of the payloads."""
    entries = payload.read_header(artefact).tensors
    return {artefact[entry.begin] for entry in entries if entry.end > entry.begin}


@pytest.mark.parametrize("effort", ["balanced", "best"])
def test_every_type(client: Client, effort: Literal["balanced", "best"]) -> None:
    tensors = {
        f"layer_{layer}_value": low_rank((2, 3, 30, 8), layer, dtype)
        for layer, dtype in enumerate(TYPES.values())
    }
    artefact = client.compress(tensors, codec="klt:0.5,0.5,3", effort=effort).artefact or b""
    assert modes(artefact) == {2}
    found = Decoder(device="cpu").decode(artefact, by_layer=True, wait=False)
    found.check()
    assert found.fallbacks == {}
    expected = client.decompress(artefact).torch_tensors()
    assert {name: raw(each) for name, each in found.tensors.items()} == {
        name: raw(each) for name, each in expected.items()
    }


def test_payloads_of_all_modes(client: Client) -> None:
    """Mode 0 is of integers, and mode 1 of `ecsq`; tensors of other ranks, too."""
    rng = np.random.default_rng(2)
    tensors = {
        "layer_0_value": low_rank((1, 2, 64, 16), 1),
        "a": rng.standard_normal(70).astype(np.float32),
        "b": low_rank((1, 2, 40, 8), 3)[0, 0],
        "c": np.array([[1e30, -1e-30]], np.float32),
        "d": np.zeros((0, 3), np.float32),
    }
    artefact = client.compress(tensors, codec="klt:0.5,0.5,3").artefact or b""
    assert modes(artefact) >= {1, 2}
    found = Decoder(device="cpu").decode(artefact)
    assert found.fallbacks == {}
    assert_same(found.tensors, client.decompress(artefact).torch_tensors())


@pytest.fixture(scope="module")
def blocks(client: Client) -> tuple[bytes, dict[str, Any]]:
    """An artefact of three blocks, of which the last two have the bases of the first."""
    source = {NAME: low_rank((1, 1, 2100, 4), 5)}
    artefact = client.compress(source, codec="klt:0.5,0.5,3").artefact or b""
    assert modes(artefact) == {2}
    return artefact, client.decompress(artefact).torch_tensors()


def test_blocks_one_by_one_where_scratch_is_short(blocks: tuple[bytes, dict[str, Any]]) -> None:
    """The bases of the first block outlive it."""
    artefact, expected = blocks
    decoder = Decoder(device="cpu", scratch=1)
    assert decoder.scratch_bytes(artefact) < Decoder(device="cpu").scratch_bytes(artefact)
    assert_same(decoder.decode(artefact).tensors, expected)


@pytest.mark.parametrize("scratch", [1, 1 << 20])
def test_a_range_into_slots_of_a_paged_cache(
    blocks: tuple[bytes, dict[str, Any]], scratch: int
) -> None:
    """Of the last block; of the first only the bases are decoded."""
    artefact, whole = blocks
    pages = torch.full((2, 40, 1, 4), 7, dtype=torch.float16)
    slots = torch.tensor([39, -1, *range(1, 12)])
    decoder = Decoder(device="cpu", scratch=scratch)
    decoder.decode(artefact, {NAME: pages[1]}, tokens=(1900, 1913), slots=slots)
    expected = torch.full_like(pages, 7)
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            expected[1, slot] = whole[NAME][0, :, 1900 + token]
    assert torch.equal(bits(pages), bits(expected))


def test_layouts(client: Client) -> None:
    values = low_rank((1, 4, 24, 16), 6, np.float32)[0]
    values = values.reshape(2, 2, 24, 16).transpose(0, 2, 1, 3).reshape(2, 1, 24, 32)
    tensors = {"kv": values.copy()}
    result = client.compress(tensors, codec="klt:0.5,0.5,3", layout="2ltd:heads=2")
    artefact = result.artefact or b""
    assert 2 in modes(artefact)
    expected = client.decompress(artefact, tokens=(4, 9)).torch_tensors()
    strided = torch.empty(*expected["kv"].shape, 2)
    found = Decoder(device="cpu").decode(artefact, {"kv": strided[..., 1]}, tokens=(4, 9))
    assert found.fallbacks == {}
    assert_same(found.tensors, expected)


def test_scratch_is_within_what_was_announced(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = {f"layer_{i}_value": low_rank((1, 2, 24, 16), i) for i in range(2)}
    artefact = client.compress(tensors, codec="klt:1,1,2").artefact or b""
    assert modes(artefact) == {2}
    assert_scratch_is_announced(artefact, monkeypatch)


def test_bases_of_any_reflectors() -> None:
    """Of extreme, small and zero integers: those of NumPy's reader."""
    rng = np.random.default_rng(10)
    for n, m in ((1, 1), (9, 9), (40, 5)):
        lengths = [n - j for j in range(m)]
        reflectors = [rng.integers(-32767, 32768, size) for size in lengths]
        reflectors[0][:] = np.where(rng.integers(0, 2, n) == 0, -32767, 32767)
        if m > 4:
            reflectors[1][:], reflectors[2][:], reflectors[3][:] = 0, 0, 1
            reflectors[2][1] = -1
        scratch = torch.from_numpy(np.concatenate([[99], *reflectors]).astype(np.int32))
        groups = torch.tensor([[0, 0, n, m, 1, 2]])
        bases = torch.full((n * n + 3,), 55, dtype=torch.int16)
        kernels.klt_reflectors_kernel[(1, m + 1)](groups, scratch, N=64)
        kernels.klt_basis_kernel[(1, 3)](groups, scratch, bases, N=64, BN=16)
        assert bases[[0, 1, -1]].tolist() == [55] * 3
        expected = _basis(reflectors, n)
        assert np.array_equal(bases[2:-1].reshape(n, n).numpy(), expected)


def test_products_of_any_levels() -> None:
    """Of three bytes, and offsets of all remainders: exact sums, rounded once."""
    rng = np.random.default_rng(11)
    width, rows, tensor_flags = 40, 19, 8
    levels = rng.integers(-(1 << 21), (1 << 21) + 1, (rows, width))
    levels[:5] = rng.integers(-2, 3, (5, width))
    levels[5] = rng.integers(-128, 129, width)
    basis = rng.integers(-32768, 32768, (width, width))
    basis[0, :4] = -32768, 32767, 32640, 127
    means = rng.integers(-(1 << 18), (1 << 18) + 1, width)
    offsets = rng.integers(-16, 49, rows)
    offsets[:2] = -16, 48
    step = np.float32(0.75)
    numbers = [np.zeros(width), means, np.zeros(rows * width), levels.ravel(), offsets]
    scratch = torch.from_numpy(np.concatenate(numbers).astype(np.int32))
    block, tensor = np.zeros((1, 24), np.int64), np.zeros((1, 12), np.int64)
    block[0, 5:7] = 1, rows
    tensor[0, [0, 5, 6]] = tensor_flags, int(step.view(np.int32)), width
    tables = [torch.from_numpy(each) for each in (block, tensor)]
    groups = torch.tensor([[0, 0, width, 3, 0, 0]])
    matrix = torch.from_numpy(basis.ravel().astype(np.int16))
    kernels.klt_product_kernel[(1, 2, 2)](*tables, groups, matrix, scratch, BM=16, BN=32, BK=32)
    quarters = np.array([0x3F800000, 0x3F5744FD, 0x3F3504F3, 0x3F1837F0], np.uint32)
    factors = quarters.view(np.float32)[offsets % 4] * np.exp2(-(offsets // 4)).astype(np.float32)
    unit = step * factors * np.float32(2.0**-15)
    expected = (levels @ basis).astype(np.float32) * unit[:, None]
    expected += means.astype(np.float32) * (step * np.float32(0.125))
    found = scratch[2 * width :][: rows * width].view(torch.float32).reshape(rows, width)
    assert np.array_equal(found.numpy(), expected)


@pytest.fixture(scope="module")
def small(client: Client) -> bytes:
    """One block of one group, with a trellis, a sink and an exception."""
    source = {NAME: low_rank((2, 3, 30, 8), 8)}
    artefact = client.compress(source, codec="klt:0.5,0.5,3", effort="best").artefact or b""
    begin = payload.read_header(artefact).tensors[0].begin
    assert artefact[begin : begin + 3] == b"\x02\x08\x01"
    return artefact


# Bytes: of the header; of the block's header with its number of reflectors; of states and the rest.
REGIONS = {
    "header": (0, 12, 1),
    "block": (12, 41, 1),
    "states": (41, 169, 16),
    "rest": (169, -1, 7),
}


@pytest.mark.parametrize("region", REGIONS)
def test_changed_bytes_are_refused_where_the_cpu_refuses_them(
    small: bytes, restore: Restore, region: str
) -> None:
    """With digests made right again: both refuse, or both give the same."""
    entry = payload.read_header(small).tensors[0]
    size, (first, end, step) = entry.end - entry.begin, REGIONS[region]
    rng = np.random.default_rng(9)
    refused = 0
    for place in range(first, end % size, step):
        damaged = bytearray(small)
        damaged[entry.begin + place] ^= 1 << int(rng.integers(8)) | (0x80 if place == 40 else 0)
        artefact = sealed(small, bytes(damaged))
        expected, found = restored(restore, artefact), decoded(artefact, "klt:0.5,0.5,3")
        refused += found is None
        assert (found is None) == (expected is None), place
        if found is not None and expected is not None:
            assert_same(found, expected)
    assert refused > 0


def test_bases_of_a_block_that_is_not_there(blocks: tuple[bytes, Any], small: bytes) -> None:
    """The first block has bases, and a block has its own or those of the one before."""
    entry = payload.read_header(small).tensors[0]
    damaged = bytearray(small)
    damaged[entry.begin + 40] = 255
    with pytest.raises(PayloadError, match="block 0, at byte 12, whose header"):
        Decoder(device="cpu").decode(sealed(small, bytes(damaged)))
    artefact = bytearray(blocks[0])
    begin = payload.read_header(blocks[0]).tensors[0].begin
    second = begin + 12 + int.from_bytes(artefact[begin + 12 : begin + 16], "little")
    assert artefact[second + 28] == 255
    artefact[second + 28] = 5
    with pytest.raises(PayloadError, match="has a block 1"):
        Decoder(device="cpu").decode(sealed(blocks[0], bytes(artefact)))


def test_a_damaged_owner_of_bases_is_refused(blocks: tuple[bytes, Any]) -> None:
    """Where a range needs nothing else of its block: of that, only what comes before levels."""
    good, whole = blocks
    begin = payload.read_header(good).tensors[0].begin
    size = int.from_bytes(good[begin + 12 : begin + 16], "little")
    bad = bytearray(good)
    bad[begin + 12 + 29 + 3] |= 0x80  # a state
    with pytest.raises(PayloadError, match="a block at byte 12 that breaks the format"):
        Decoder(device="cpu").decode(sealed(good, bytes(bad)), tokens=(1900, 1913))
    late = bytearray(good)
    late[begin + 12 + size - 1] ^= 0x80
    found = Decoder(device="cpu").decode(sealed(good, bytes(late)), tokens=(1900, 1913))
    assert_same(found.tensors, {NAME: whole[NAME][:, :, 1900:1913]})
    with pytest.raises(PayloadError, match="a block at byte 12 that breaks the format"):
        Decoder(device="cpu").decode(sealed(good, bytes(late)))


def test_no_memory_is_taken_for_shapes_that_payloads_are_too_small_for(small: bytes) -> None:
    """Also where the number of elements would do, and there are too many blocks."""
    begin = 8 + int.from_bytes(small[:8], "little")
    shapes = {b"90x99x999x999": "too few for", b"1x1x900000x1": "a header|ends early"}
    for shape, words in shapes.items():
        text = small[8:begin].rstrip().replace(b" 2x3x30x8 ", b" " + shape + b" ")
        text = text.ljust(len(text) + -len(text) % 8)
        artefact = seal(len(text).to_bytes(8, "little") + text) + small[begin:]
        with pytest.raises(PayloadError, match=words):
            Decoder(device="cpu").decode(artefact)
