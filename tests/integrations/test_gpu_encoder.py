# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.gpu.Encoder by Triton's interpreter, held against the service."""

import math
from typing import Any

import numpy as np
import pytest
from gpu_decoding import language_patched_once, torch
from gpu_reports import assert_same_report

from kvcompress import Client, InvalidArgumentError, UnimplementedError
from kvcompress.gpu import Encoder
from kvcompress.gpu._roles import role_of
from oracle import encoder as oracle

__all__ = ["language_patched_once"]
pytestmark = pytest.mark.slow
DTYPES = ("float32", "float16", "bfloat16")


def cache(dtype: str, seed: int = 0) -> dict[str, Any]:
    """Tensors of all ranks: short groups, odd numbers of elements, edges of rounding, zeros."""
    rng = np.random.default_rng(seed)
    shapes = {
        "layer_0_key": (1, 2, 17, 24),
        "layer_0_value": (2, 3, 70, 16),
        "layer_1_key": (3, 5, 7),
    }
    shapes |= {"plain": (4097,), "scalar": (), "empty": (1, 2, 0, 8), "zeros": (5, 9)}
    tensors = {}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape) * 3 * (name != "zeros")
        if name == "plain":
            # Halves of the scale of a group, and values that it nearly rounds away.
            values[:64] = np.arange(64) / 2 - 14
            values[64:128] = np.arange(64) * 1e-8
            values[128:192] = 6e4
        tensors[name] = torch.from_numpy(np.asarray(values)).to(getattr(torch, dtype))
    return tensors


@pytest.mark.parametrize("codec", ["int4:32", "int4", "int8:128"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_and_reports_are_those_of_the_service(client: Client, dtype: str, codec: str) -> None:
    tensors = cache(dtype)
    labels, metadata = {"model": "tiny", "a": "ü"}, {"z": "1", "b": "\n"}
    encoded = Encoder(codec, "cpu").encode(tensors, labels=labels, metadata=metadata)
    expected = client.compress(tensors, codec=codec, labels=labels, metadata=metadata)
    assert encoded.artefact == expected.artefact
    assert encoded.fallback == ""
    assert_same_report(encoded.report, expected.report)


def test_strides_and_pages(client: Client) -> None:
    pool = torch.randn(2, 40, 3, 16, 2, generator=torch.Generator().manual_seed(1))
    slots = torch.tensor([7, 0, 39, 12])
    pages = {f"layer_{layer}_key": pool[layer, ..., 1] for layer in range(2)}
    encoded = Encoder("int8", "cpu").encode(pages, slots=slots)
    whole = {name: each[slots].transpose(0, 1).unsqueeze(0) for name, each in pages.items()}
    assert encoded.artefact == Encoder("int8", "cpu").encode(whole).artefact
    expected = client.compress(
        {name: each.contiguous() for name, each in whole.items()}, codec="int8"
    )
    assert encoded.artefact == expected.artefact


LATENTS = "t(d+r):d=64"


@pytest.mark.parametrize("codec", ["int4:32", "int8:128"])
def test_latents_are_encoded_as_the_service_does(client: Client, codec: str) -> None:
    """Whole, and from slots of pages."""
    pool = torch.randn(2, 40, 90, generator=torch.Generator().manual_seed(2)).bfloat16()
    pages = {"layer_0": pool[0, :, :80], "kv_cache.3": pool[1, :, 10:]}
    slots = torch.tensor([7, 0, 39, 12, 1])
    whole = {name: each[slots] for name, each in pages.items()}
    expected = client.compress(whole, codec=codec, layout=LATENTS, labels={"a": "b"})
    encoder = Encoder(codec, "cpu")
    for found in (
        encoder.encode(pages, slots=slots, layout=LATENTS, labels={"a": "b"}),
        encoder.encode(whole, layout=LATENTS, labels={"a": "b"}),
    ):
        assert found.artefact == expected.artefact
        assert_same_report(found.report, expected.report)


def test_latents_that_the_device_does_not_encode(client: Client) -> None:
    """Of `ecsq`, of another type, and in other layouts."""
    latents = {"layer_0": torch.randn(30, 80)}
    expected = client.compress(latents, codec="ecsq", layout=LATENTS).artefact
    encoded = Encoder("ecsq", "cpu", client=client).encode(latents, layout=LATENTS)
    assert encoded.artefact == expected
    assert "of a latent" in encoded.fallback
    with pytest.raises(UnimplementedError, match="of a latent"):
        Encoder("ecsq", "cpu").encode(latents, layout=LATENTS)
    for layout, message in {
        "t(hd):h=4": "no other layout",
        "t(d+r):d=80": "another shape",
        "mla": "unknown layout",
    }.items():
        with pytest.raises(InvalidArgumentError, match=message):
            Encoder("int8", "cpu").encode(latents, layout=layout)
    with pytest.raises(InvalidArgumentError, match="\\[slots, channels\\]"):
        Encoder("int8", "cpu").encode(
            {"layer_0": torch.randn(9, 2, 80)}, layout=LATENTS, slots=torch.arange(9)
        )


def refused(client: Client, values: Any, codec: str) -> None:  # noqa: ANN401
    """Requires that the device and the service refuse a tensor alike."""
    tensors = {"layer_0_key": values}
    with pytest.raises(InvalidArgumentError) as found:
        Encoder(codec, "cpu").encode(tensors)
    with pytest.raises(InvalidArgumentError) as expected:
        client.compress(tensors, codec=codec)
    for name in ("reason", "tensor", "element"):
        assert getattr(found.value, name) == getattr(expected.value, name)


@pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered")
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30])
def test_what_has_no_code_is_refused_by_name(client: Client, bad: float) -> None:
    values = torch.ones(1, 2, 300, 16)
    values[0, 1, 7, 3] = bad
    refused(client, values, "int4")
    refused(client, values.transpose(2, 3), "int8")


@pytest.mark.parametrize("seed", range(3))
def test_any_values(seed: int) -> None:
    """Groups of all magnitudes, subnormal scales too, and a last one of any size."""
    rng = np.random.default_rng(seed)
    for exponent in range(-30, 15, 4):
        count = int(rng.integers(1, 40))
        values = (rng.standard_normal(count) * 2.0**exponent).astype(np.float32)
        encoded = Encoder("int4:32", "cpu").encode({"x": torch.from_numpy(values)})
        groups = [oracle.quantize(values[first : first + 32]) for first in range(0, count, 32)]
        payload = b"".join(scale.tobytes() for scale, _ in groups)
        payload += b"".join(oracle.pack(codes) for _, codes in groups)
        assert encoded.artefact.endswith(payload)


def test_other_types_fall_back(client: Client) -> None:
    tensors = {"layer_0_key": torch.ones(1, 1, 4, 8, dtype=torch.float64)}
    with pytest.raises(UnimplementedError, match="give the Encoder a client"):
        Encoder("int4", "cpu").encode(tensors)
    encoded = Encoder("int4", "cpu", client=client).encode(tensors)
    assert (
        encoded.fallback == "tensor 'layer_0_key': it is torch.float64, not one of F32, F16, BF16"
    )
    assert encoded.artefact == client.compress(tensors, codec="int4").artefact


def test_arguments_that_do_not_fit() -> None:
    encoder, one = Encoder("int4", "cpu"), {"x": torch.ones(3)}
    for codec in ("int4:16", "lossless", "int4:64:1", ""):
        with pytest.raises(InvalidArgumentError, match="groups of 32, 64 or 128"):
            Encoder(codec, "cpu")
    with pytest.raises(InvalidArgumentError, match="TRITON_INTERPRET"):
        Encoder("int4", "cuda")
    with pytest.raises(InvalidArgumentError, match="label 'A'"):
        encoder.encode(one, labels={"A": "1"})
    with pytest.raises(InvalidArgumentError, match="at most 32"):
        encoder.encode(one, labels={str(i): "" for i in range(33)})
    with pytest.raises(InvalidArgumentError, match="leave it out"):
        encoder.encode(one, metadata={"kvcompress.x": "1"})
    with pytest.raises(InvalidArgumentError, match="a slot of -1"):
        encoder.encode(one, slots=torch.tensor([-1]))
    with pytest.raises(InvalidArgumentError, match="of 8 slots at least"):
        encoder.encode({"x": torch.ones(7, 2, 2)}, slots=torch.tensor([7]))


NAMES = [f"{path}{form}" for path in ("", "model.", "model.layers.1.") for form in (
    "layer_3_key", "layer_03_value", "past_key_values.3.key", "present.3.value", "key_cache.3",
    "value_cache_3", "layers.3.keys", "layers.3.values", "h.3.attn.v_cache", "layers.3.k_cache",
    "layers.3.self_attn.key_cache", "k_buffer.3", "cache_v_l3", "cache_k_l1234567890",
    "layers.3.self_attn.attn", "kv_cache.3", "h.3.x.kv_cache", "layers.1.h.2.attn.k_cache", "other",
    "layer_3_keys", "layer_3_v", "layer_3_K", "layer3_key", "layer.3.value", "past_key_3",
    "present_value_3", "past_3_key", "present_3_value", "past_key_values_3_key",
    "present_key_values_3_value", "present_key_values.3.key", "past_key_values.3.decoder.value",
    "present.3.encoder.key", "v_cache_3", "layers.3.key_cache", "value_3", "k_3", "V_3", "kv.3.k",
    "kv.3.value", "kv.3.keys", "past_key_3_key", "x.k_3",
)]  # fmt: skip


def test_names_tell_what_they_tell_the_service(client: Client) -> None:
    tensors = {name: np.ones((1, 1, 2, 8), np.float32) for name in NAMES}
    reports = client.compress(tensors, codec="int4").report.tensors
    for report in reports:
        role = {"key": "k", "value": "v", None: "-"}[report.role]
        assert role_of(report.name) == (role, report.layer), report.name
