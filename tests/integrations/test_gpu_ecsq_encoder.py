# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.gpu.Encoder with `ecsq` by Triton's interpreter: the bytes of the service."""

import math
from typing import Any

import numpy as np
import pytest
from gpu_decoding import assert_same, language_patched_once, torch
from gpu_reports import assert_same_report

from kvcompress import Client, InvalidArgumentError, UnimplementedError, load_torch, payload
from kvcompress.gpu import Decoder, Encoder
from kvcompress.gpu._ecsq_choices import read_steps
from kvcompress.gpu._ecsq_integers import exception_list
from kvcompress.payload._dtypes import bits_dtype

__all__ = ["language_patched_once"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::kvcompress.CompressionWarning"),
]
LLAMA = {
    "model_type": "llama",
    "rope_theta": 5e5,
    "head_dim": 16,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}
YARN = {
    "model_type": "qwen3",
    "rope_theta": 1e4,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}
PARTIAL = {"model_type": "gptj", "rope_theta": 1e4, "rotary_dim": 8}
LINEAR = {
    "model_type": "llama",
    "rope_theta": 1e4,
    "rope_scaling": {"rope_type": "linear", "factor": 2.0},
}


def torch_of(values: Any, dtype: str) -> Any:  # noqa: ANN401
    """A tensor of a type."""
    return torch.from_numpy(np.asarray(values)).to(getattr(torch, dtype))


def keys(
    rng: np.random.Generator, *shape: int, theta: float = 1e4, interleaved: bool = False
) -> np.ndarray[Any, Any]:
    """Keys with steady means in their channels, rotated as a model does."""
    heads = (*shape[:2], 1, shape[3])
    values = rng.standard_normal(shape) + 4 * rng.standard_normal(heads)
    pairs = shape[3] // 2
    angles = np.arange(shape[2])[:, None] * theta ** (-np.arange(pairs) / pairs)
    cosine, sine = np.cos(angles), np.sin(angles)
    one = slice(0, None, 2) if interleaved else slice(0, pairs)
    other = slice(1, None, 2) if interleaved else slice(pairs, None)
    a, b = values[..., one].copy(), values[..., other].copy()
    values[..., one], values[..., other] = a * cosine - b * sine, a * sine + b * cosine
    return values


def cache(dtype: str) -> dict[str, Any]:
    """Tensors of all ranks: keys with rotations, values with norms, none and zeros."""
    rng = np.random.default_rng(len(dtype))
    values = {
        "layer_0_key": keys(rng, 1, 2, 34, 16),
        "layer_0_value": rng.standard_normal((2, 1, 33, 16)) * rng.uniform(0.1, 3, (2, 1, 33, 1)),
        "layer_1_key": keys(rng, 1, 1, 12, 6, theta=5e5, interleaved=True),
        "layer_1_value": rng.standard_normal((1, 2, 3, 5)),
        "layer_2_key": np.zeros((1, 1, 8, 4)),
        "layer_2_value": np.zeros((1, 1, 8, 4)),
        "plain": rng.standard_normal(70),
        "scalar": np.array(3.5),
        "empty": np.zeros((1, 2, 0, 8)),
        "three": 5 * rng.standard_normal((3, 10, 7)),
        "five": rng.standard_normal((2, 1, 2, 5, 3)),
    }
    return {name: torch_of(each, dtype) for name, each in values.items()}


def assert_as_the_service(
    client: Client,
    codec: str,
    tensors: dict[str, Any],
    *,
    scratch: int = 1 << 30,
    metadata: dict[str, str] | None = None,
    **rope: Any,  # noqa: ANN401
) -> bytes:
    """Requires the service's bytes and report; returns the artefact."""
    encoder = Encoder(codec, "cpu", scratch=scratch, **rope)
    encoded = encoder.encode(tensors, metadata=metadata)
    expected = client.compress(tensors, codec=codec, metadata=metadata, **rope)
    assert encoded.fallback == ""
    for one, other in zip(encoded.report.tensors, expected.report.tensors, strict=True):
        assert (one.rope, one.digest) == (other.rope, other.digest), one.name
    assert encoded.artefact == expected.artefact
    assert_same_report(encoded.report, expected.report)
    return encoded.artefact


@pytest.mark.parametrize(
    ("dtype", "codec"),
    [("bfloat16", "ecsq"), ("float16", "ecsq:max"), ("float32", "ecsq:0.20,3e-1")],
)
def test_bytes_and_reports_are_those_of_the_service(client: Client, dtype: str, codec: str) -> None:
    tensors = cache(dtype)
    artefact = assert_as_the_service(client, codec, tensors)
    theirs = client.decompress(artefact).torch_tensors()
    assert_same(Decoder(device="cpu").decode(artefact).tensors, theirs)
    for name, values in payload.read(artefact).items():
        bits = bits_dtype({"float32": "F32"}.get(dtype, "F16"))
        found = theirs[name].contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        assert np.asarray(values).astype(values.dtype).view(bits).tobytes() == found
    assert client.decompress(artefact, verify_only=True).report.tensor_count == len(tensors)


def test_labels_and_metadata(client: Client) -> None:
    tensors = {"layer_0_value": torch.ones(1, 1, 3, 8), "b": torch.zeros(0)}
    labels, metadata = {"model": "tiny", "a": "ü"}, {"z": "1", "b": "\n"}
    encoded = Encoder("ecsq:high", "cpu").encode(tensors, labels=labels, metadata=metadata)
    expected = client.compress(tensors, codec="ecsq:high", labels=labels, metadata=metadata)
    assert encoded.artefact == expected.artefact


def test_a_part_of_a_real_cache(client: Client, sample: bytes) -> None:
    real = load_torch(sample)
    names = ("layer_7_key", "layer_7_value")
    tensors = {name: real[name][:, 1:2, :40].contiguous() for name in names}
    for codec in ("ecsq:high", "ecsq:contract"):
        assert_as_the_service(client, codec, tensors)


def test_outliers_escapes_and_low_bits(client: Client) -> None:
    """Channels and tokens that are far larger than others."""
    rng = np.random.default_rng(5)
    key, value = keys(rng, 1, 2, 30, 8), rng.standard_normal((1, 2, 30, 8))
    key[..., 3] *= 100
    value[..., 2] *= 300
    value[:, :, 5] *= 1000
    far = rng.standard_t(1.2, (1, 1, 40, 8))
    tensors = {"layer_0_key": torch_of(key, "float32"), "layer_0_value": torch_of(value, "float32")}
    assert_as_the_service(client, "ecsq:high", tensors)
    tensors = {"layer_1_key": torch_of(far, "bfloat16")}
    assert_as_the_service(client, "ecsq:0.05,0.05", tensors)


def test_exceptions_and_trials_of_contract(client: Client) -> None:
    """Rare outliers are hidden, and what is too far off is stored as it is, of sinks too."""
    rng = np.random.default_rng(6)
    key, value = keys(rng, 1, 2, 60, 16), 3 * rng.standard_normal((1, 2, 60, 16))
    key[0, 1, 7, 3], key[0, 0, 0, 1] = 5000, 3000
    value[0, 1, 3, 3], value[0, 0, 0, 2] = -2e4, 3e3
    value[0, 1, 20] *= 30
    tiny = 1e-38 * rng.standard_normal((1, 1, 20, 8))
    many = 3000 * rng.standard_normal((1, 1, 20, 8))
    tensors = {"layer_0_key": key, "layer_0_value": value, "layer_1_key": tiny}
    tensors |= {"layer_1_value": tiny[:, :, :6] / 1e4, "layer_2_value": many}
    floats = {name: torch_of(each, "float32") for name, each in tensors.items()}
    assert_as_the_service(client, "ecsq", floats)


def test_the_gaps_of_exceptions_have_one_to_three_bytes() -> None:
    places = np.array([5, 6, 6 + 129, 135 + 16385, 16520 + 200000])
    elements = np.arange(10, dtype=np.uint8).reshape(5, 2)
    found = exception_list(places, elements)
    gaps = [b"\5", b"\0", b"\x80\1", b"\x80\x80\1", (199999).to_bytes(3, "big")]
    last = 199999
    gaps[4] = bytes([last & 127 | 128, last >> 7 & 127 | 128, last >> 14])
    assert found == b"".join(gap + bytes(each) for gap, each in zip(gaps, elements, strict=True))


def test_tensors_that_become_integers(client: Client) -> None:
    """Beyond what steps reach, where coding is larger, and with too many channels for blocks."""
    rng = np.random.default_rng(7)
    tensors = {
        "layer_0_key": 1e30 * rng.standard_normal((1, 1, 12, 4)),
        "layer_1_key": np.exp(20 * rng.standard_normal((1, 1, 20, 8))),
        "layer_2_value": rng.standard_normal((1, 1, 1, 1)),
        "layer_3_value": rng.standard_normal((1, 1, 2, 4097)),
        "layer_4_value": np.full((1, 1, 7, 9), 3.3e38),
    }
    floats = {name: torch_of(each, "float32") for name, each in tensors.items()}
    for codec in ("ecsq:high", "ecsq"):
        assert_as_the_service(client, codec, floats)


def test_blocks_of_heads_and_of_tokens(client: Client) -> None:
    """Encoded one by one; their sizes differ."""
    rng = np.random.default_rng(8)
    tensors = {
        "layer_0_value": torch_of(rng.standard_normal((1, 1, 1027, 2)), "bfloat16"),
        "layer_0_key": torch_of(keys(rng, 1, 3, 3, 2000), "bfloat16"),
    }
    assert_as_the_service(client, "ecsq:max", tensors, scratch=1)


def test_strides_and_pages(client: Client) -> None:
    pool = 2 * torch.randn(2, 40, 3, 16, 2, generator=torch.Generator().manual_seed(1))
    slots = torch.tensor([7, 0, 39, 12, 5, 6])
    pages = {f"layer_0_{role}": pool[i, ..., 1] for i, role in enumerate(("key", "value"))}
    whole = {name: each[slots].transpose(0, 1).unsqueeze(0) for name, each in pages.items()}
    for codec in ("ecsq:high", "ecsq:contract"):
        encoded = Encoder(codec, "cpu").encode(pages, slots=slots)
        assert encoded.artefact == Encoder(codec, "cpu").encode(whole).artefact
        expected = client.compress(
            {name: each.contiguous() for name, each in whole.items()}, codec=codec
        )
        assert encoded.artefact == expected.artefact


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 3e4},
        {"rope_theta": 0},
        *({"model_config": config} for config in (LLAMA, YARN, PARTIAL, LINEAR)),
    ],
)
def test_rotations_that_are_declared(client: Client, rope: dict[str, Any]) -> None:
    rng = np.random.default_rng(9)
    tensors = {
        "layer_0_key": torch_of(keys(rng, 1, 2, 24, 16, theta=3e4), "bfloat16"),
        "layer_1_key": torch_of(keys(rng, 1, 1, 24, 16, interleaved=True), "bfloat16"),
    }
    assert_as_the_service(client, "ecsq:high", tensors, **rope)


def test_the_metadata_declares_a_base(client: Client) -> None:
    rng = np.random.default_rng(10)
    tensors = {"layer_0_key": torch_of(keys(rng, 1, 2, 24, 16, theta=3e4), "bfloat16")}
    for text in ("30000", "0", "other"):
        assert_as_the_service(client, "ecsq:high", tensors, metadata={"rope_theta": text})


def test_layers_have_rotations_of_their_own(client: Client) -> None:
    config: dict[str, Any] = {
        "model_type": "gemma3_text",
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
    }
    config["layer_types"] = ["sliding_attention", "full_attention"]
    rng = np.random.default_rng(11)
    tensors = {
        f"layer_{layer}_key": torch_of(keys(rng, 1, 1, 24, 8, theta=theta), "float16")
        for layer, theta in enumerate((1e4, 1e6, 1e4))
    }
    assert_as_the_service(client, "ecsq:high", tensors, model_config=config)


@pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered")
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_named(client: Client, bad: float) -> None:
    tensors = {"layer_0_key": torch.ones(1, 2, 30, 16), "layer_0_value": torch.ones(1, 2, 9, 4)}
    tensors["layer_0_value"][0, 1, 7, 3] = bad
    with pytest.raises(InvalidArgumentError) as found:
        Encoder("ecsq", "cpu").encode(tensors)
    with pytest.raises(InvalidArgumentError) as expected:
        client.compress(tensors, codec="ecsq")
    for name in ("reason", "tensor", "element"):
        assert getattr(found.value, name) == getattr(expected.value, name)


def test_what_the_device_does_not_encode(client: Client) -> None:
    wide = {"layer_0_key": torch.ones(1, 1, 4, 8, dtype=torch.float64)}
    latent = {"layer_0_key": torch.ones(1, 1, 8, 24)}
    config = {"model_type": "deepseek_v2", "rope_theta": 1e4}
    config |= {"kv_lora_rank": 16, "qk_rope_head_dim": 8}
    cases: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
        (wide, "it is torch.float64", {}),
        (latent, "channels before the rotated ones", {"model_config": config}),
    ]
    for tensors, reason, rope in cases:
        with pytest.raises(UnimplementedError, match=reason):
            Encoder("ecsq:high", "cpu", **rope).encode(tensors)
        encoded = Encoder("ecsq:high", "cpu", client=client, **rope).encode(tensors)
        assert reason in encoded.fallback
        assert encoded.artefact == client.compress(tensors, codec="ecsq:high", **rope).artefact


def test_parameters_are_those_of_the_service(client: Client) -> None:
    """Numbers in any spelling; artefacts have one."""
    tensors = {"x": np.ones(3, np.float32)}
    for text in (
        "",
        "max",
        "0.52,0.520",
        "5e-1,.6",
        "value_step=8,key_step=0.05",
        "1,value_step=2",
    ):
        report = client.compress(tensors, codec=f"ecsq:{text}" if text else "ecsq").report
        assert report.codec == f"ecsq:{read_steps(text).text}"
    wrong = ["low", "0.5", "0.5,9", "0.01,1", "0.12345,1", "1,1,1", "key_step=1,2", "1,key_step=2"]
    for text in (*wrong, "nan,1", "max,1", "-1,1", "1,"):
        with pytest.raises(InvalidArgumentError) as found:
            Encoder(f"ecsq:{text}", "cpu")
        with pytest.raises(InvalidArgumentError) as expected:
            client.compress(tensors, codec=f"ecsq:{text}")
        assert found.value.reason == expected.value.reason == "INVALID_CODEC_OPTION"


def test_arguments_that_do_not_fit(client: Client) -> None:
    with pytest.raises(InvalidArgumentError, match="not together"):
        Encoder("ecsq", "cpu", rope_theta=1e4, model_config=LLAMA)
    with pytest.raises(InvalidArgumentError, match="from 1 to 1e12"):
        Encoder("ecsq", "cpu", rope_theta=0.5)
    with pytest.raises(InvalidArgumentError, match="are for ecsq, not for 'int4'"):
        Encoder("int4", "cpu", rope_theta=1e4)
    tensors = {"layer_0_key": torch.ones(1, 1, 8, 6)}
    with pytest.raises(InvalidArgumentError, match="cannot have the rotary") as found:
        Encoder("ecsq", "cpu", model_config=PARTIAL).encode(tensors)
    with pytest.raises(InvalidArgumentError) as expected:
        client.compress(tensors, codec="ecsq", model_config=PARTIAL)
    for name in ("reason", "tensor", "field"):
        assert getattr(found.value, name) == getattr(expected.value, name)
