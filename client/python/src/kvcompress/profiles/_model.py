# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Runs a Hugging Face model: caches, gradients of its predictions by them, and injection.

Needs torch and transformers. A cache is a list of (keys, values), layer by layer, each
[1, heads, tokens, head_dim], with keys as attention takes them, after their rotation.
"""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch  # type: ignore[import-not-found,unused-ignore]
from transformers import (  # type: ignore[import-not-found,unused-ignore]
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
)

# What the cosine of a pair of channels may be off.
_MOST_OFF = 0.01

Cache = list[tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Rotation:
    """What turns the keys of a layer: channels (p, p + pairs) of a head, by position.

    Attributes:
        radians: [pairs], for each token.
        cosine: [tokens, pairs].
        sine: The same.
    """

    radians: torch.Tensor
    cosine: torch.Tensor
    sine: torch.Tensor

    def undo(self, keys: torch.Tensor) -> torch.Tensor:
        """Turns keys [..., tokens, head_dim], or gradients by them, back."""
        tokens, pairs = keys.shape[-2], self.cosine.shape[-1]
        cosine, sine = self.cosine[:tokens], self.sine[:tokens]
        one, other, rest = keys.split([pairs, pairs, keys.shape[-1] - 2 * pairs], -1)
        turned = [one * cosine + other * sine, other * cosine - one * sine, rest]
        return torch.cat(turned, -1)


class LanguageModel:
    """A causal language model and its tokenizer."""

    def __init__(self, model: torch.nn.Module, tokenizer: Callable[..., Mapping[str, Any]]) -> None:
        """Takes a model, which is changed to take no gradients of its own, and its tokenizer."""
        self.model: Any = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.first_tokens: list[int] = list(tokenizer("")["input_ids"])

    @classmethod
    def load(cls, name: str, device: str) -> Self:
        """Loads a model and its tokenizer.

        Args:
            name: A folder, a GGUF file, or a name on the Hugging Face hub.
            device: Where to put the model.

        Raises:
            OSError: It is not there.
        """
        path = Path(name)
        if path.exists():
            os.environ.setdefault("HF_HUB_OFFLINE", "1")
        place, options = name, {}
        if path.is_file():
            place, options = str(path.parent), {"gguf_file": path.name}
        tokenizer: Any = AutoTokenizer.from_pretrained(place, **options)
        model: Any = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32, **options)
        return cls(model.to(device), tokenizer)

    def tokenize(self, text: str) -> list[int]:
        """Returns the tokens of a text, without what goes before every text."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def prefill(self, tokens: Sequence[int]) -> Cache:
        """Returns the cache of a text, in the type of the model."""
        cache = DynamicCache()
        with torch.no_grad():
            self.model(self._ids(tokens), past_key_values=cache, use_cache=True, logits_to_keep=1)
        return [(layer.keys, layer.values) for layer in cache.layers]

    def predict(self, cache: Cache, fed: Sequence[int]) -> torch.Tensor:
        """Returns the log-probabilities [tokens, vocabulary] of what follows each token fed."""
        past = DynamicCache()
        for i, (keys, values) in enumerate(cache):
            past.update(keys, values, i)
        logits = self.model(self._ids(fed), past_key_values=past, use_cache=True).logits[0]
        return torch.log_softmax(logits.float(), -1)

    def gradients(
        self, cache: Cache, fed: Sequence[int], samples: int, generator: torch.Generator
    ) -> list[Cache]:
        """Returns, `samples` times, the gradients by a cache of sampled predictions.

        Of each prediction one token is drawn. The log-probabilities of these are summed with
        random signs, so that products of the gradient estimate the Fisher information: what
        different predictions share cancels.
        """
        leaves = [(k.clone().requires_grad_(), v.clone().requires_grad_()) for k, v in cache]
        flat = [tensor for pair in leaves for tensor in pair]
        with torch.enable_grad():
            log = self.predict(leaves, fed)
        found = []
        for sample in range(samples):
            drawn = torch.multinomial(log.detach().exp().cpu(), 1, generator=generator)
            signs = 2 * torch.randint(0, 2, drawn.shape, generator=generator) - 1
            loss = (signs.to(log.device) * log.gather(1, drawn.to(log.device))).sum()
            parts = torch.autograd.grad(loss, flat, retain_graph=sample + 1 < samples)
            found.append(list(zip(parts[::2], parts[1::2], strict=True)))
        return found

    def rotations(self, tokens: int) -> list[Rotation | None]:
        """Returns the rotation of each layer's keys; None for all where the model has none.

        Raises:
            ValueError: It is none that profiles know.
        """
        layers = int(self.model.config.get_text_config().num_hidden_layers)
        named = [m for name, m in self.model.named_modules() if name.endswith("rotary_emb")]
        if not named:
            return [None] * layers
        kinds = getattr(self.model.config.get_text_config(), "layer_types", None) or [None] * layers
        by_kind = {kind: self._rotation(named[0], tokens, kind) for kind in set(kinds)}
        return [by_kind[kind] for kind in kinds]

    def _rotation(self, module: torch.nn.Module, tokens: int, kind: str | None) -> Rotation:
        positions = torch.arange(tokens, device=self.model.device)[None]
        like = torch.zeros(1, device=self.model.device)
        options = {"layer_type": kind} if "layer_type" in _parameters(module) else {}
        with torch.no_grad():
            cosine, sine = (each[0].double().cpu() for each in module(like, positions, **options))
        pairs = cosine.shape[-1] // 2
        length = torch.hypot(cosine, sine)  # some models scale both
        cosine, sine = (cosine / length)[:, :pairs], (sine / length)[:, :pairs]
        radians = torch.atan2(sine[1], cosine[1])
        expected = torch.cos(torch.arange(tokens)[:, None] * radians)
        if float((expected - cosine).abs().max()) > _MOST_OFF:
            raise ValueError(
                "the model's rotary position embedding does not turn by the same angle from token "
                "to token: train from caches alone (--samples 0)"
            )
        return Rotation(radians, cosine.float(), sine.float())

    def _ids(self, tokens: Sequence[int]) -> torch.Tensor:
        return torch.tensor([list(tokens)], device=self.model.device)


def _parameters(module: torch.nn.Module) -> set[str]:
    return set(inspect.signature(module.forward).parameters)


def divergence(base: torch.Tensor, changed: torch.Tensor) -> float:
    """The mean Kullback-Leibler divergence of log-probabilities [tokens, vocabulary], in nats."""
    return float((base.exp() * (base - changed)).sum(-1).mean())
