# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Giving back a part: by name, by token, or nothing but the verdict."""

import fnmatch
import re

import numpy as np
import pytest

from kvcompress import Client, DataLossError, InvalidArgumentError
from oracle import encoder
from oracle.source import ITEM_SIZE, Tensor, tensor, write

SHAPE = (2, 3, 77, 64)
NAMES = ("layer_0_key", "layer_0_value", "layer_10_key", "layer_10_value")


def cache() -> encoder.Artefact:
    """Four tensors of [batch, heads, tokens, head_dim] in two types."""
    rng = np.random.default_rng(11)
    return encoder.encode(
        write(
            [
                tensor(name, ("BF16", "F32")[index % 2], rng.standard_normal(SHAPE))
                for index, name in enumerate(NAMES)
            ],
            {"m": "1"},
        )
    )


def cut(each: encoder.EncodedTensor, begin: int, end: int) -> Tensor:
    """Returns the tokens [begin, end) of a decoded tensor."""
    dtype = each.source.dtype
    items = np.frombuffer(each.decoded, f"<u{ITEM_SIZE[dtype]}").reshape(SHAPE)
    part = np.ascontiguousarray(items[:, :, begin:end])
    return Tensor(each.source.name, dtype, part.shape, part.tobytes())


@pytest.mark.parametrize(
    "patterns",
    [
        ("*_key",),
        ("layer_0_*",),
        ("layer_?_key", "layer_10_value"),
        ("layer_[01]_key",),
        ("layer_10_key",),
        ("*",),
    ],
)
def test_tensors(client: Client, patterns: tuple[str, ...]) -> None:
    artefact = cache()
    chosen = [
        each
        for each in artefact.tensors
        if any(fnmatch.fnmatchcase(each.source.name, pattern) for pattern in patterns)
    ]
    got = client.decompress(artefact.data, tensors=patterns)
    assert got.safetensors == write([cut(each, 0, 77) for each in chosen], {"m": "1"})
    assert got.report.tensors_selected == len(chosen)
    assert got.report.tensor_count == len(NAMES)
    assert got.report.payload_digest == artefact.checksum


@pytest.mark.parametrize(
    ("patterns", "bad"),
    [(("*_kay",), "*_kay"), (("*_key", "*_valve"), "*_valve"), (("layer_1_*", "*"), "layer_1_*")],
)
@pytest.mark.parametrize("verify_only", [False, True])
def test_a_pattern_that_matches_nothing(
    client: Client, patterns: tuple[str, ...], bad: str, verify_only: bool
) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(f'matches "{bad}"')) as caught:
        client.decompress(cache().data, tensors=patterns, verify_only=verify_only)
    assert (caught.value.reason, caught.value.field) == ("NO_TENSOR_SELECTED", "options.tensors")


@pytest.mark.parametrize("tokens", [(0, 77), (0, 1), (76, 77), (5, 40), (31, 33)])
def test_tokens(client: Client, tokens: tuple[int, int]) -> None:
    artefact = cache()
    got = client.decompress(artefact.data, tokens=tokens)
    assert got.safetensors == write([cut(each, *tokens) for each in artefact.tensors], {"m": "1"})
    both = client.decompress(artefact.data, tokens=tokens, tensors=["*_value"])
    chosen = [cut(each, *tokens) for each in artefact.tensors if "value" in each.source.name]
    assert both.safetensors == write(chosen, {"m": "1"})


@pytest.mark.parametrize("tokens", [(0, 78), (78, 79), (5, 4), (0, 2**63)])
def test_tokens_that_are_not_there(client: Client, tokens: tuple[int, int]) -> None:
    with pytest.raises(InvalidArgumentError):
        client.decompress(cache().data, tokens=tokens)


def test_tokens_of_another_rank(client: Client) -> None:
    flat = encoder.encode(write([tensor("flat", "F32", np.ones((4, 8)))]))
    with pytest.raises(InvalidArgumentError) as caught:
        client.decompress(flat.data, tokens=(0, 1))
    assert caught.value.tensor == "flat"


def test_damage_is_found_in_what_is_left_out(client: Client) -> None:
    artefact = cache()
    damaged = bytearray(artefact.data)
    damaged[-1] ^= 1
    for options in ({"tensors": ["layer_0_key"]}, {"tokens": (0, 1)}, {"verify_only": True}):
        with pytest.raises(DataLossError) as caught:
            client.decompress(bytes(damaged), **options)
        assert caught.value.tensor == "layer_10_value"


def test_verify_only(client: Client) -> None:
    artefact = cache()
    got = client.decompress(artefact.data, verify_only=True)
    assert (got.tensors, got.safetensors, got.path) == (None, None, None)
    assert got.report.payload_digest == artefact.checksum
    assert got.report.tensor_count == len(NAMES)
    assert got.report.output_size_bytes == 0


def test_layer_by_layer(client: Client) -> None:
    names = sorted(f"layer_{layer}_{part}" for layer in range(12) for part in ("key", "value"))
    rng = np.random.default_rng(12)
    artefact = encoder.encode(
        write([tensor(name, "BF16", rng.standard_normal(SHAPE)) for name in names])
    )
    ordered = sorted(artefact.tensors, key=lambda each: int(each.source.name.split("_")[1]))
    assert ordered != list(artefact.tensors)
    told: list[str] = []

    def take(name: str, array: "np.typing.NDArray[np.generic]") -> None:
        told.append(name)
        assert array.tobytes() == cut(ordered[len(told) - 1], 0, 77).data

    got = client.decompress(artefact.data, order="layers", on_tensor=take)
    assert got.safetensors == write([cut(each, 0, 77) for each in ordered], {})
    assert told == [each.source.name for each in ordered]
    some = client.decompress(artefact.data, order="layers", tensors=["*_value"], tokens=(3, 9))
    assert some.safetensors == write(
        [cut(each, 3, 9) for each in ordered if "value" in each.source.name], {}
    )
    as_it_was = client.decompress(artefact.data, order="file").safetensors
    assert as_it_was == write([cut(each, 0, 77) for each in artefact.tensors], {})


def test_an_order_that_there_is_not(client: Client) -> None:
    with pytest.raises(ValueError, match="order is one of file, layers, not 'heads'"):
        client.decompress(cache().data, order="heads")  # type: ignore[call-overload]


def test_tensors_are_told_of_before_damage_is_found(client: Client) -> None:
    artefact = cache()
    damaged = bytearray(artefact.data)
    damaged[-1] ^= 1
    told: list[str] = []
    with pytest.raises(DataLossError):
        client.decompress(bytes(damaged), on_tensor=lambda name, _: told.append(name))
    assert told == list(NAMES[: len(told)])
    with pytest.raises(ValueError, match="output takes the file"):
        client.decompress(artefact.data, "out", on_tensor=print)
