# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""RoPE as models have it: config.json, the frequencies in the payload, and what they save."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvcompress import Client, CompressionReport, InvalidArgumentError, payload
from kvcompress.payload._codec import Entry
from kvcompress.payload._ecsq_block import read_rotation
from oracle.fixtures import REPOSITORY
from oracle.rope import Floats, inverse_frequencies, keys, rotate
from oracle.source import read, tensor, write

CONFIGS = REPOSITORY / "tests" / "data" / "model_configs"
# By model: head_dim, rotated channels, layer, base, whether pairs are neighbours.
MODELS: dict[str, tuple[int, int, int, float, bool]] = {
    "llama-3.1-8b": (128, 128, 3, 5e5, False),
    "llama-3.2-1b": (64, 64, 3, 5e5, False),
    "qwen2.5-7b": (128, 128, 0, 1e6, False),
    "qwen2.5-7b-yarn": (128, 128, 27, 1e6, False),
    "phi-2": (80, 32, 1, 1e4, False),
    "gpt-neox-20b": (96, 24, 5, 1e4, False),
    "gpt-j-6b": (256, 64, 2, 1e4, True),
    "gemma-3-4b": (256, 256, 5, 1e6, False),
    "gemma-3-270m": (256, 256, 4, 1e4, False),
    "deepseek-v3": (64, 64, 60, 1e4, True),
    "gpt-oss-20b": (64, 64, 0, 1.5e5, False),
    "smollm3-3b": (128, 128, 2, 5e6, False),
}


def config(name: str) -> dict[str, Any]:
    """What a config.json of the test data says."""
    parsed: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text())
    return parsed


def frequencies(name: str) -> Floats:
    """Those of the model's layer in the table, by the published formulas."""
    _, rotary, _, theta, _ = MODELS[name]
    text = config(name).get("text_config", config(name))
    return inverse_frequencies(theta, rotary, text.get("rope_scaling"))


def cache(name: str) -> bytes:
    """Keys of that layer, as the model would have them."""
    channels, _, layer, _, interleaved = MODELS[name]
    made = rotate(keys((1, 2, 96, channels), 1), frequencies(name), interleaved=interleaved)
    return write([tensor(f"layer_{layer}_key", "BF16", made)])


def excess_bits(report: CompressionReport) -> float:
    """Bits a value beyond what its SNR is worth: steps follow what is left to code."""
    assert report.metrics.snr_db is not None
    return report.bits_per_value - report.metrics.snr_db / 6.02


@pytest.mark.parametrize("codec", ["ecsq:high", "klt:0.6,0.7,4"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_declared(client: Client, tmp_path: Path, name: str, codec: str) -> None:
    """The payload has the model's frequencies, is small for that, and reads alike elsewhere."""
    channels, rotary, _, theta, interleaved = MODELS[name]
    path = tmp_path / "in"
    path.write_bytes(cache(name))
    got = client.compress(path, codec=codec, model_config=config(name), reconstruct=True)
    without = client.compress(path, codec=codec, rope_theta=0)
    assert excess_bits(got.report) < excess_bits(without.report) - 0.1
    rope = got.report.tensors[0].rope
    assert rope is not None
    assert (rope.theta, rope.declared) == (theta, True)
    assert rope.pairs == ("interleaved" if interleaved else "halves")
    artefact = got.artefact or b""
    (entry,) = payload.read_header(artefact).tensors
    data = artefact[entry.begin : entry.end]
    rotation, _ = read_rotation(data, 12, channels, entry)
    assert rotation is not None
    assert (rotation.first, rotation.pairs) == (0, rotary // 2)
    turns = 2 * np.pi / 2.0**64 * np.array([float(each) for each in rotation.increments])
    np.testing.assert_allclose(turns, frequencies(name), rtol=2e-8)
    (restored,) = read(got.reconstructed or b"")[0]
    assert payload.read(artefact)[restored.name].tobytes() == restored.data


def test_what_is_found_out_is_reported(client: Client) -> None:
    made = rotate(keys((1, 2, 96, 64), 1), inverse_frequencies(5e5, 64))
    value = keys((1, 2, 96, 64), 2).astype(np.float32)
    file = {"layer_0_key": made.astype(np.float32), "layer_0_value": value}
    report = client.measure(file, codec="ecsq:high")
    found, none = (each.rope for each in report.tensors)
    assert found is not None
    assert (found.theta, found.pairs, found.declared) == (5e5, "halves", False)
    assert none is None


def test_layers_without_an_embedding(client: Client, tmp_path: Path) -> None:
    """Every fourth layer of SmolLM3, and all of GPT-2."""
    made = rotate(keys((1, 2, 96, 128), 1), frequencies("smollm3-3b"))
    path = tmp_path / "in"
    path.write_bytes(write([tensor("layer_3_key", "BF16", made)]))
    for name in ("smollm3-3b", "gpt-2"):
        report = client.measure(path, codec="ecsq:high", model_config=CONFIGS / f"{name}.json")
        assert report.tensors[0].rope is None


def test_an_embedding_of_another_model_is_refused(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(write([tensor("layer_0_key", "BF16", keys((1, 2, 9, 16), 1))]))
    with pytest.raises(InvalidArgumentError, match="a head of 16 channels"):
        client.measure(path, codec="ecsq:high", model_config=config("phi-2"))
    with pytest.raises(InvalidArgumentError, match="one of them"):
        client.measure(path, codec="int4", model_config=config("llama-3.1-8b"), rope_theta=1e4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, "dynamic"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2}}, "no rope_theta"),
        ({"model_type": "new", "num_hidden_layers": 2}, 'of model_type "new" is not known'),
        ({"model_type": "gemma3_text"}, "which layers there are"),
        (
            {
                "layer_types": ["full_attention", "other"],
                "rope_parameters": {"full_attention": {"rope_theta": 1e4}},
            },
            "layers of type other",
        ),
        ({"hidden_size": 4}, "nothing"),
    ],
)
def test_a_config_that_does_not_say(client: Client, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        client.measure({"x": np.zeros(4, np.float32)}, model_config=fields)


def test_a_rotated_part_beyond_the_head_is_refused() -> None:
    head = bytes([1, 2 | 16, 0, 0, 0, 0, 0, 0, 0, 0, 128, 63]) + bytes(8)
    entry = Entry("x", "ecsq", "F32", (8, 8), "k", 0, "", 0, 0)
    good = head + bytes([2, 0, 3, 0, 0, 0, 0, 0])
    assert read_rotation(good, 12, 8, entry)[1] == 28
    for bad in (bytes([4, 0, 3, 0]), bytes([0, 0, 0, 0])):
        with pytest.raises(payload.PayloadError):
            read_rotation(head + bad + bytes(4), 12, 8, entry)
