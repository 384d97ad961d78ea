# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.gpu.Encoder with profiles by Triton's interpreter, held against the service."""

import math
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_decoding import GOLDEN, assert_same, language_patched_once, torch

from kvcompress import Client, InvalidArgumentError, UnimplementedError, load_torch, payload
from kvcompress.gpu import Decoder, Encoded, Encoder, _basis, _decoder
from oracle.server import running_server

__all__ = ["language_patched_once"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::kvcompress.CompressionWarning"),
]
PROFILE = GOLDEN / "tiny.profile"
FROM_START = {"first_token": "0"}


@pytest.fixture(scope="module")
def profiled(bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a server that has the golden profile."""
    folder = tmp_path_factory.mktemp("profiles")
    shutil.copy(PROFILE, folder)
    with (
        running_server(bin_dir, "--profile-directory", str(folder)) as server,
        Client(server.target, timeout=60) as client,
    ):
        yield client


def noise(batches: int, tokens: int, dtype: str, scale: float = 1) -> dict[str, Any]:
    """Tensors that are not like those of the training: quanta of all sizes."""
    rng = np.random.default_rng(tokens)
    tensors = {}
    for layer in range(4):
        for role in ("key", "value"):
            values = rng.standard_normal((batches, 2, tokens, 16)) * scale * 4.0**layer
            tensors[f"layer_{layer}_{role}"] = torch.from_numpy(values).to(getattr(torch, dtype))
    return tensors


def assert_as_good(client: Client, encoded: Encoded, tensors: dict[str, Any], codec: str) -> None:
    """Requires that the CPU restores what the device wrote, and would not write it better."""
    expected = client.compress(tensors, codec=codec, profile="tiny", metadata=FROM_START)
    assert encoded.fallback == ""
    found = client.decompress(encoded.artefact)
    mine = Decoder(PROFILE, "cpu").decode(encoded.artefact)
    assert_same(mine.tensors, found.torch_tensors())
    assert found.report.payload_digest == encoded.report.payload_digest
    assert expected.artefact is not None
    assert len(encoded.artefact) <= 1.03 * len(expected.artefact)
    metrics, theirs = encoded.report.metrics, expected.report.metrics
    for name in ("snr_db", "psnr_db", "centred_snr_db", "token_snr_db_p1"):
        assert getattr(metrics, name) == pytest.approx(getattr(theirs, name), abs=0.05), name
    assert metrics.cosine_similarity == pytest.approx(theirs.cosine_similarity, abs=1e-4)
    assert encoded.report.codec == expected.report.codec
    for one, other in zip(encoded.report.tensors, expected.report.tensors, strict=True):
        assert (one.codec, one.profile_group) == (other.codec, other.profile_group)
        assert (one.role, one.layer) == (other.role, other.layer)


def test_a_cache_like_those_of_the_training(profiled: Client) -> None:
    """The same quanta as those of the CPU, so the same payloads, but for products in binary16."""
    tensors = load_torch((GOLDEN / "cache.safetensors").read_bytes())
    encoded = Encoder("klt:high", "cpu", profile=PROFILE).encode(tensors, metadata=FROM_START)
    assert_as_good(profiled, encoded, tensors, "klt:high")
    use = encoded.report.profile
    assert use is not None
    assert (use.label, use.tensor_count, use.first_token) == ("tiny", 8, 0)


@pytest.mark.parametrize(
    ("batches", "tokens", "dtype", "scale"),
    [(2, 19, "float32", 1), (1, 40, "float16", 30), (1, 1, "bfloat16", 1)],
)
def test_low_bits_and_escapes(
    profiled: Client, batches: int, tokens: int, dtype: str, scale: float
) -> None:
    """Of several blocks, which are encoded one by one."""
    tensors = noise(batches, tokens, dtype, scale)
    encoder = Encoder("klt:max", "cpu", profile=PROFILE, scratch=1)
    encoded = encoder.encode(tensors, metadata=FROM_START)
    assert_as_good(profiled, encoded, tensors, "klt:max")


def test_sinks_are_those_that_the_service_finds(profiled: Client) -> None:
    """Near the first token they are integers, and elsewhere their steps are finer."""
    tensors = noise(2, 64, "bfloat16")
    for values in (each for name, each in tensors.items() if name.endswith("value")):
        values[:, :, [0, 2]] *= 0.1
        values[1, :, 50] *= 0.1
    encoded = Encoder("klt:high", "cpu", profile=PROFILE).encode(tensors, metadata=FROM_START)
    assert_as_good(profiled, encoded, tensors, "klt:high")
    expected = profiled.compress(tensors, codec="klt:high", profile="tiny", metadata=FROM_START)
    assert expected.artefact is not None
    for artefact in (encoded.artefact, expected.artefact):
        entry = payload.read_header(artefact).tensors[3]
        data = artefact[entry.begin : entry.end]
        (runs,) = struct.unpack_from("<I", data, 24)
        counts = [struct.unpack_from("<Hb", data, 32 + at) for at in range(0, runs, 3)]
        offsets = np.concatenate([np.full(count, offset) for count, offset in counts])
        assert data[6] == 3
        assert [token for token in range(1, 63) if offsets[token] > offsets[63]] == [2, 50]


def test_the_tiling_of_devices_encodes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tiles are for the interpreter, and those of devices hold all of a golden cache."""
    tensors = load_torch((GOLDEN / "cache.safetensors").read_bytes())
    small = Encoder("klt:ultra", "cpu", profile=PROFILE).encode(tensors)
    monkeypatch.setattr(_decoder, "INTERPRETER_TILING", _basis.DEVICE_TILING)
    large = Encoder("klt:ultra", "cpu", profile=PROFILE).encode(tensors)
    assert large.artefact == small.artefact


def test_short_blocks_pages_and_a_later_part(profiled: Client) -> None:
    tensors = noise(1, 24, "bfloat16")
    pages = {name: each[0].transpose(0, 1).flip(0) for name, each in tensors.items()}
    encoder = Encoder("klt:high", "cpu", profile=PROFILE, block_tokens=16)
    slots = torch.arange(23, -1, -1)
    encoded = encoder.encode(pages, slots=slots, first_token=1000)
    part = profiled.decompress(encoded.artefact).torch_tensors()
    assert {name: each.shape for name, each in part.items()} == {
        name: each.shape for name, each in tensors.items()
    }
    entry = payload.read_header(encoded.artefact).tensors[3]
    header = encoded.artefact[entry.begin :][:32]
    # Neither sinks nor finer steps: how old its tokens are is not known.
    assert (header[6], int.from_bytes(header[8:16], "little")) == (0, 1000)
    assert (int.from_bytes(header[20:22], "little"), header[24:28]) == (16, bytes(4))
    assert torch.equal(
        part["layer_0_key"], Decoder(PROFILE, "cpu").decode(encoded.artefact).tensors["layer_0_key"]
    )


def test_what_the_device_does_not_encode(profiled: Client) -> None:
    tensors = noise(1, 20, "float32")
    encoder = Encoder("klt:high", "cpu", profile=PROFILE)
    with pytest.raises(UnimplementedError, match="no group for it"):
        encoder.encode({"other": tensors["layer_0_key"], **tensors})
    del tensors["layer_0_key"]
    with pytest.raises(UnimplementedError, match="'layer_0_value': the profile has no group"):
        encoder.encode(tensors)
    encoded = Encoder("klt:high", "cpu", profile=PROFILE, client=profiled).encode(tensors)
    assert encoded.fallback.startswith("tensor 'layer_0_value': the profile has no group")
    assert profiled.decompress(encoded.artefact).report.tensor_count == 7


@pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered")
@pytest.mark.parametrize("token", [0, 9])
def test_what_is_not_finite_is_named(profiled: Client, token: int) -> None:
    tensors = noise(1, 20, "float32")
    tensors["layer_1_value"][0, 1, token, 3] = math.nan
    with pytest.raises(InvalidArgumentError) as found:
        Encoder("klt:high", "cpu", profile=PROFILE).encode(tensors)
    with pytest.raises(InvalidArgumentError) as expected:
        profiled.compress(tensors, codec="klt:high", profile="tiny", metadata=FROM_START)
    for name in ("reason", "tensor", "element"):
        assert getattr(found.value, name) == getattr(expected.value, name)
    tensors["layer_1_value"][0, 1, token, 3] = 1e30
    if token:
        with pytest.raises(InvalidArgumentError, match=r"more than 2\^20 steps"):
            Encoder("klt:high", "cpu", profile=PROFILE).encode(tensors)


def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(InvalidArgumentError, match="has high, max, ultra"):
        Encoder("klt:low", "cpu", profile=PROFILE)
    with pytest.raises(InvalidArgumentError, match="use a Client"):
        Encoder("klt:contract", "cpu", profile=GOLDEN / "contract.profile")
    with pytest.raises(InvalidArgumentError, match="klt with a profile"):
        Encoder("klt:high", "cpu")
    with pytest.raises(InvalidArgumentError, match="16 to 256"):
        Encoder("klt:high", "cpu", profile=PROFILE, block_tokens=8)
    with pytest.raises(InvalidArgumentError, match="below 2"):
        Encoder("klt:high", "cpu", profile=PROFILE).encode({}, first_token=-1)
