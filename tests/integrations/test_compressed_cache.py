# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""CompressedCache: layers that are compressed and restored in one call."""

import os
from concurrent.futures import Future
from typing import Any

import pytest

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from tiny_llama import generate, make_model, prompt  # noqa: E402
from transformers import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    DynamicCache,
    LlamaConfig,
)

import kvcompress  # noqa: E402
from kvcompress.integrations.transformers import CompressedCache  # noqa: E402


@pytest.mark.parametrize(
    ("group_layers", "groups"),
    [
        (1, [(0,), (1,), (2,), (3,), (4,), (5,)]),
        (3, [(0, 1), (2, 3, 4), (5,)]),
        (9, [(0, 1), (2, 3, 4, 5)]),
    ],
)
def test_layers_share_artefacts(
    client: kvcompress.Client, group_layers: int, groups: list[tuple[int, ...]]
) -> None:
    """The first ones are few; bytes are counted once, and nothing decoded is left over."""
    model = make_model(layers=6)
    cache = CompressedCache(
        client,
        model.config,
        codec="lossless",
        residual_length=8,
        block_length=16,
        group_layers=group_layers,
    )
    expected = generate(model, prompt(2), DynamicCache(config=model.config), num_beams=2)
    assert torch.equal(generate(model, prompt(2), cache, num_beams=2), expected)
    assert [block.layers for block in cache.blocks] == [each for each in groups for _ in range(2)]
    exact = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert cache.stored_bytes == exact + sum(len(block.artefact) for block in cache.blocks)
    assert not any(group._passing or group._staying for group in cache._shared.groups)


@pytest.mark.parametrize("decoded_bytes", [0, 1 << 24])
def test_layers_of_a_group_that_differ(
    client: kvcompress.Client,
    model: Any,  # noqa: ANN401
    decoded_bytes: int,
) -> None:
    """Layers that are filled, read and cropped out of step, as generate never does."""
    cache = CompressedCache(
        client,
        model.config,
        codec="lossless",
        residual_length=8,
        block_length=16,
        decoded_bytes=decoded_bytes,
    )
    states = torch.randn(2, 1, 2, 60, 16)
    first, second = cache.layers
    for _ in range(2):
        first.update(states[0], states[0])
        assert not first.blocks, "the other layer has no tokens yet"
        second.update(states[1], states[1])
        assert [block.layers for block in cache.blocks] == [(0, 1)]
        for _ in range(2):  # one again, before the other was read
            assert torch.equal(first.states()[0], states[0])
        first.crop(-20)
        assert torch.equal(first.states()[1], states[0, :, :, :40])
        assert torch.equal(second.states()[1], states[1])
        first.update(states[0, :, :, 40:50], states[0, :, :, 40:50])
        second.update(states[1, :, :, :20], states[1, :, :, :20])
        lengths = [[block.length for block in layer.blocks] for layer in cache.layers]
        assert lengths == [[52], [52, 20]], "the first has 10 tokens that are exact"
        assert torch.equal(first.states()[0], states[0, :, :, :50])
        assert torch.equal(second.states()[0][:, :, :60], states[1])
        first.batch_select_indices(torch.tensor([0, 0]))
        assert torch.equal(first.states()[0], states[0, :, :, :50].repeat(2, 1, 1, 1))
        assert torch.equal(second.states()[0][:, :, 60:], states[1, :, :, :20])
        cache.reset()
        assert (cache.get_seq_length(), list(cache.blocks)) == (0, [])


def test_bound_that_is_missed_keeps_the_tokens(client: kvcompress.Client) -> None:
    """Of all layers of the group, of which one misses it; with other values it goes on."""
    cache = CompressedCache(
        client,
        LlamaConfig(num_hidden_layers=2),
        codec="int8",
        residual_length=0,
        block_length=16,
        max_error=1,
    )
    torch.manual_seed(0)
    plain = torch.randn(1, 2, 32, 64)
    wild = plain.clone()
    wild[..., 0] = 1e6
    first, second = cache.layers
    first.update(plain, plain)
    with pytest.raises(kvcompress.QualityError):
        second.update(wild, wild)
    assert not list(cache.blocks)
    assert torch.equal(first.states()[0], plain)
    assert torch.equal(second.states()[0], wild)
    cache.crop(-32)
    for layer in cache.layers:
        layer.update(plain, plain)
    assert [block.length for block in cache.blocks] == [32]


def test_forked_process_has_threads_of_its_own(
    client: kvcompress.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than waiting for those of its parent, of which it has none."""
    cache = CompressedCache(client, codec="lossless", residual_length=0, block_length=4)
    states = torch.ones(1, 2, 8, 16)
    cache.update(states, states, 0)
    cache.layers[0].states()
    coming: Any = Future()
    [group] = cache._shared.groups
    [block] = cache.blocks
    group._coming[block] = coming  # as where its parent has yet to restore it
    part = dict.fromkeys(("layer_0_key", "layer_0_value"), states)
    monkeypatch.setattr(cache._shared._exchange, "restore", lambda artefact: dict(part))
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(cache.layers[0].states()[0], states) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_without_a_config(client: kvcompress.Client, model: Any) -> None:  # noqa: ANN401
    """Layers come one by one, and share artefacts once all of them are there."""
    cache = CompressedCache(client, codec="lossless", residual_length=8, block_length=16)
    expected = generate(model, prompt(), DynamicCache())
    assert torch.equal(generate(model, prompt(), cache), expected)
    assert [block.layers for block in cache.blocks] == [(0,), (0, 1), (1,)]
