# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""transformers' caches on a device, which Triton's interpreter stands in for."""

import math
from pathlib import Path
from typing import Any

import pytest
from documents import claimed_blocks
from gpu_decoding import GOLDEN, language_patched_once, torch

import kvcompress
from kvcompress.gpu import Decoder, Encoder

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from kvcompress.integrations.transformers import (  # noqa: E402
    CompressedCache,
    cache_tensors,
    load_cache,
    save_cache,
)

__all__ = ["language_patched_once"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::kvcompress.CompressionWarning"),
]


@pytest.fixture(scope="module")
def model() -> Any:  # noqa: ANN401
    """A small model with random weights."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    return transformers.LlamaForCausalLM(config).eval()


def filled(model: Any, tokens: int = 40) -> Any:  # noqa: ANN401
    """A cache of a prompt."""
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad():
        model(torch.arange(tokens)[None] % 64, past_key_values=cache)
    return cache


@pytest.mark.parametrize("codec", ["lossless", "int8", "ecsq", "klt:high", "lossless+zstd"])
def test_a_file_is_restored_on_the_device(
    client: kvcompress.Client,
    model: Any,  # noqa: ANN401
    tmp_path: Path,
    codec: str,
) -> None:
    """As the client restores it; `lossless+zstd` by way of the decoder's own client."""
    path = tmp_path / "cache.kvc.safetensors"
    save_cache(client, path, filled(model), codec=codec, labels={"of": "me"})
    decoder = Decoder(device="cpu", client=client)
    expected = cache_tensors(load_cache(client, path))
    found = cache_tensors(load_cache(None, path, decoder=decoder, expected_labels={"of": "me"}))
    assert found.keys() == expected.keys()
    for name, states in expected.items():
        assert torch.equal(found[name], states), name
    for labels in ({"of": "you"}, {"for": "me"}):
        messages = []
        for options in ({}, {"decoder": decoder}):
            with pytest.raises(kvcompress.DataLossError) as refused:
                load_cache(client, path, expected_labels=labels, **options)  # type: ignore[arg-type]
            assert refused.value.reason == "IDENTITY_MISMATCH"
            messages.append(refused.value.message.replace("'", '"'))
        assert messages[0] == messages[1]


def test_a_file_is_written_from_the_device(
    client: kvcompress.Client,
    model: Any,  # noqa: ANN401
    tmp_path: Path,
) -> None:
    """The one that the client writes, but for what says when."""
    paths = [tmp_path / name for name in ("by_client", "on_device")]
    labels = {"of": "me"}
    reports = [
        save_cache(client, paths[0], filled(model), codec="int8:32", labels=labels),
        save_cache(None, paths[1], filled(model), encoder=Encoder("int8:32", "cpu"), labels=labels),
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert reports[0].metrics.snr_db == pytest.approx(reports[1].metrics.snr_db)
    with pytest.raises(TypeError, match="codec"):
        save_cache(None, paths[1], filled(model), encoder=Encoder("int8", "cpu"), codec="int4")
    with pytest.raises(TypeError, match="a client or an encoder"):
        save_cache(None, paths[1], filled(model))
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_the_block_of_the_guide(
    client: kvcompress.Client,
    model: Any,  # noqa: ANN401
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"client": client, "model": model, "cache": filled(model)}
    names |= {"encoder": Encoder("int4", "cpu"), "decoder": Decoder(device="cpu")}
    [block] = claimed_blocks("transformers, device")
    exec(block, names)
    cache: Any = names["cache"]
    assert cache.get_seq_length() == 40
    older: Any = names["older"]
    with torch.no_grad():
        model(torch.arange(300)[None] % 64, past_key_values=older)
    assert [each.report.codec for each in older.blocks] == ["int4:64"]


def test_a_file_that_is_none(tmp_path: Path) -> None:
    decoder = Decoder(device="cpu")
    with pytest.raises(ValueError, match="not a regular file"):
        decoder.decode(tmp_path)
    with pytest.raises(FileNotFoundError):
        decoder.decode(str(tmp_path / "none"))
    (tmp_path / "short").write_bytes(b"123")
    with pytest.raises(kvcompress.payload.PayloadError, match="ends within its header"):
        decoder.decode(tmp_path / "short")
    with pytest.raises(TypeError, match="a client or a decoder"):
        load_cache(None, tmp_path / "short")


def test_older_tokens_are_compressed_on_the_device(
    client: kvcompress.Client,
    model: Any,  # noqa: ANN401
) -> None:
    """With the bytes of the service, so that generate does the same."""
    ids = torch.arange(60)[None] % 64
    lengths: Any = {"residual_length": 8, "block_length": 8, "group_layers": 2}
    on_device = CompressedCache(
        client,
        model.config,
        encoder=Encoder("int8", "cpu"),
        decoder=Decoder(device="cpu"),
        **lengths,
    )
    by_client = CompressedCache(client, model.config, codec="int8", **lengths)
    answers = [
        model.generate(ids, past_key_values=cache, max_new_tokens=12, do_sample=False)
        for cache in (on_device, by_client)
    ]
    assert torch.equal(*answers)
    blocks = [list(cache.blocks) for cache in (on_device, by_client)]
    assert [block.artefact for block in blocks[0]] == [block.artefact for block in blocks[1]]
    assert len(blocks[0]) > 1
    with pytest.raises(ValueError, match="takes no codec"):
        CompressedCache(client, model.config, encoder=Encoder("int8", "cpu"), codec="int4")


def test_what_is_not_finite_goes_to_the_client(
    client: kvcompress.Client,
    model: Any,  # noqa: ANN401
) -> None:
    cache = CompressedCache(
        client,
        model.config,
        encoder=Encoder("int4", "cpu"),
        decoder=Decoder(device="cpu"),
        residual_length=0,
        block_length=4,
        group_layers=2,
    )
    states = torch.randn(1, 2, 6, 16)
    states[0, 1, 3, 5] = math.nan
    for layer in range(2):
        cache.update(states, states, layer)
    [block] = cache.blocks
    assert block.report.codec == "auto"
    assert cache_tensors(cache)["layer_1_key"].isnan().sum() == 1


def test_an_encoder_of_groups_is_refused(client: kvcompress.Client) -> None:
    """A block has other layers than a group of a profile, and begins anywhere in the text."""
    encoder = Encoder("klt:high", "cpu", profile=GOLDEN / "tiny.profile")
    with pytest.raises(ValueError, match="int4 or int8"):
        CompressedCache(client, encoder=encoder)
