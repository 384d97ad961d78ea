# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`klt`: the service and kvcompress.payload give the same bits, and keep what they promise."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kvcompress import Client, InvalidArgumentError, payload
from oracle.fixtures import SAMPLE
from oracle.source import read, tensor, write
from oracle.test_ecsq import rotated, shapes

# With sanitizers the encoder takes many times as long.
pytestmark = pytest.mark.timeout(600)

PRESETS = (
    "contract",
    "high",
    "max",
    "ultra",
    "0.6,0.7,32",
    "1.5,2.35,96,0.45",
    "1.8,2.8,96,0.3,0.75",
)
Values = npt.NDArray[np.float32]


def joint(shape: tuple[int, ...], seed: int, *, norms: bool = False) -> Values:
    """Tokens whose heads and channels move together, around means of their own."""
    rng = np.random.default_rng(seed)
    heads, tokens, channels = int(np.prod(shape[:-2])), shape[-2], shape[-1]
    factors = rng.standard_normal((tokens, 12)) * np.exp2(-np.arange(12) / 3)
    mixed = factors @ rng.standard_normal((12, heads * channels))
    mixed += 0.2 * rng.standard_normal(mixed.shape) + rng.standard_normal(heads * channels)
    values = mixed.reshape(tokens, heads, channels).transpose(1, 0, 2).reshape(shape)
    if norms:
        values = values * np.exp2(rng.uniform(-1, 1, (*shape[:-1], 1)))
    return np.ascontiguousarray(values, np.float32)


@pytest.mark.parametrize("shape", [(1, 1, 600, 512), (1, 1, 300, 576), (520, 1024), (2, 400, 257)])
def test_long_heads(client: Client, shape: tuple[int, ...]) -> None:
    """A basis of up to 1,024 channels of one head, as latents have: smaller at the same error."""
    rng = np.random.default_rng(7)
    latent = rng.standard_normal((*shape[:-1], 24)) @ rng.standard_normal((24, shape[-1]))
    latent += 0.3 * rng.standard_normal(latent.shape)
    file = {"latent": latent.astype(np.float16)}
    alone = client.measure(file, codec="ecsq:0.4,0.4").metrics
    got = client.compress(file, codec="klt:0.4,0.4", reconstruct=True)
    size = client.measure(file, codec="ecsq:0.4,0.4").compressed_size_bytes
    assert got.artefact is not None
    (entry,) = payload.read_header(got.artefact).tensors
    assert got.artefact[entry.begin] == 2
    assert got.report.compressed_size_bytes < size / 1.1
    assert got.report.metrics.rmse < 1.05 * alone.rmse
    (restored,) = read(got.reconstructed or b"")[0]
    assert payload.read(got.artefact)["latent"].tobytes() == restored.data


def cache(dtype: str) -> bytes:
    """Tensors of many shapes that the codec is for, one block and several."""
    tensors = []
    for index, shape in enumerate(
        [(1, 3, 512, 64), (1, 2, 130, 80), (2, 2, 300, 32), (1, 5, 1100, 16), (1, 1, 140, 256)]
    ):
        tensors.append(tensor(f"layer_{index}_key", dtype, joint(shape, index)))
        tensors.append(tensor(f"layer_{index}_value", dtype, joint(shape, 50 + index, norms=True)))
    keys = rotated(joint((1, 3, 400, 64), 100), 10000, interleaved=False)
    tensors.append(tensor("layer_100_key", dtype, keys))
    tensors.append(tensor("layer_101_key", dtype, joint((1, 20, 132, 256), 101)))
    outliers = joint((1, 2, 200, 64), 102)
    outliers.reshape(-1)[[0, 999, 25599]] = 65504
    tensors.append(tensor("layer_102_key", dtype, outliers))
    tensors.append(tensor("layer_102_value", dtype, outliers))
    tensors.append(tensor("plain", dtype, joint((200, 96), 103)))
    tensors.append(tensor("constant", dtype, np.full((1, 2, 200, 32), 3.0)))
    return write(tensors)


def modes(artefact: bytes) -> dict[str, int]:
    """Returns the mode of each payload."""
    entries = payload.read_header(artefact).tensors
    return {each.name: artefact[each.begin] for each in entries if each.end > each.begin}


@pytest.mark.parametrize(
    ("dtype", "preset"),
    [("F32", "contract"), ("F16", "max"), *(("BF16", preset) for preset in PRESETS)],
)
def test_same_bits(client: Client, dtype: str, preset: str) -> None:
    source = cache(dtype)
    got = client.compress(source, codec=f"klt:{preset}", reconstruct=True)
    artefact = got.artefact or b""
    assert got.report.codec == f"klt:{preset}"
    assert sum(mode == 2 for mode in modes(artefact).values()) >= 8
    restored = client.decompress(artefact).safetensors
    assert restored == got.reconstructed
    arrays = payload.read(artefact)
    for each in read(restored or b"")[0]:
        assert arrays[each.name].tobytes() == each.data, each.name


@pytest.mark.parametrize(("dtype", "preset"), [("F32", "contract"), ("BF16", "0.9,0.9,64,0.45")])
def test_same_bits_along_a_trellis(client: Client, dtype: str, preset: str) -> None:
    source = cache(dtype)
    got = client.compress(source, codec=f"klt:{preset}", effort="best", reconstruct=True)
    plain = client.compress(source, codec=f"klt:{preset}")
    assert got.report.compressed_size_bytes < plain.report.compressed_size_bytes
    artefact = got.artefact or b""
    arrays = payload.read(artefact)
    for each in read(got.reconstructed or b"")[0]:
        assert arrays[each.name].tobytes() == each.data, each.name


def test_attention(client: Client) -> None:
    """What the caller says moves bits from token to token, for keys and values alike."""
    values = joint((1, 3, 600, 64), 7)
    source = write([tensor("layer_4_key", "F32", values), tensor("layer_4_value", "F32", values)])
    octaves = np.zeros(600)
    octaves[100:150] = 4
    got = client.compress(source, codec="klt:1.25,1.9,96,0.4", attention={4: octaves})
    artefact = got.artefact or b""
    for array in payload.read(artefact).values():
        errors = ((array - values) ** 2).mean(axis=(0, 1, 3))
        assert 2 * errors[100:150].mean() < errors[300:350].mean()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"codec": "ecsq"}, "ecsq does not weigh tokens"),
        ({"codec": "klt:contract"}, "klt:contract does not weigh tokens"),
        ({"attention": {0: [0.0] * 599}}, "599 tokens of layer 0"),
        ({"attention": {7: [0.0] * 600}}, "no tensor is of layer 7"),
        ({"attention": {0: [float("nan")] * 600}}, "not a number from -64 to 64"),
        ({"attention": {0: [65.0] * 600}}, "not a number from -64 to 64"),
    ],
)
def test_attention_that_does_not_fit(client: Client, options: dict[str, Any], words: str) -> None:
    source = write([tensor("layer_0_key", "F32", joint((1, 3, 600, 64), 7))])
    options = {"codec": "klt:max", "attention": {0: [0.0] * 600}, **options}
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        client.compress(source, **options)
    assert caught.value.reason == "INVALID_ATTENTION"


@pytest.mark.parametrize(
    ("preset", "taken"),
    [
        ("1,1", True),
        ("1,1,1", True),
        ("1,1,1,1", True),
        ("1,1,1,1,1", True),
        ("0.05,8,128,0,2", True),
        ("2,2,96,0.3,0.75", True),
        ("1,1,129", False),
        ("1,1,1,1.5", False),
        ("1,1,1,1,2.5", False),
        ("1,1,1,1,0.10", True),
        ("1,1,1,1,", False),
        ("1,1,1,1,1,1", False),
        ("1", False),
    ],
)
def test_presets_of_numbers(client: Client, preset: str, taken: bool) -> None:
    """The service takes what the reader knows, and nothing else."""
    source = write([tensor("layer_0_key", "F32", joint((1, 1, 130, 64), 7))])
    if taken:
        assert payload.read(client.compress(source, codec=f"klt:{preset}").artefact or b"")
        return
    with pytest.raises(InvalidArgumentError, match=r"^INVALID_ARGUMENT .*klt.*it takes key_step "):
        client.compress(source, codec=f"klt:{preset}")
    with pytest.raises(ValueError, match="unknown codec"):
        payload.payload_size(f"klt:{preset}", (1, 1, 130, 64), "F32")


@pytest.mark.parametrize("preset", ["contract", "max"])
def test_other_shapes_are_those_of_ecsq(client: Client, preset: str) -> None:
    source = shapes("BF16")
    got = client.compress(source, codec=f"klt:{preset}")
    arrays = payload.read(got.artefact or b"")
    restored = client.decompress(got.artefact or b"").safetensors
    for each in read(restored or b"")[0]:
        assert arrays[each.name].tobytes() == each.data, each.name


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_never_larger_than_ecsq_at_the_same_steps(client: Client, dtype: str) -> None:
    for source in (cache(dtype), shapes(dtype), SAMPLE.read_bytes()):
        for preset in ("contract", "0.6,0.7"):
            ours = client.compress(source, codec=f"klt:{preset}").report
            theirs = client.compress(source, codec=f"ecsq:{preset}").report
            for mine, other in zip(ours.tensors, theirs.tensors, strict=True):
                assert mine.compressed_size_bytes <= other.compressed_size_bytes, mine.name


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_contract_holds(client: Client, dtype: str) -> None:
    """For tensors of a usual size: what int8's bound does not forbid."""
    report = client.compress(cache(dtype), codec="klt").report
    failed = [each.name for each in report.tensors if not each.verdict.passed]
    assert failed == []


def test_sample_holds(client: Client) -> None:
    report = client.compress(SAMPLE, codec="klt").report
    assert report.tensors_failed == 0


def test_tokens_of_several_blocks(client: Client) -> None:
    source = cache("BF16")
    artefact = client.compress(source, codec="klt:high").artefact or b""
    everything = payload.read(artefact)["layer_3_key"]
    part = client.decompress(artefact, tensors=["layer_3_key"], tokens=(1000, 1040)).tensors
    assert part is not None
    assert part["layer_3_key"].tobytes() == everything[:, :, 1000:1040].tobytes()


@pytest.mark.parametrize(
    "preset",
    ["low", "0.6", "0.6,0.7,129", "0.6,0.7,1.5", "0.6,0.7,", "9,9,1", "1,1,1,1.1", "1,1,1,x"],
)
def test_parameters(client: Client, preset: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        client.compress(SAMPLE, codec=f"klt:{preset}")
    assert (caught.value.reason, caught.value.field) == ("INVALID_CODEC_OPTION", "options.codec")
