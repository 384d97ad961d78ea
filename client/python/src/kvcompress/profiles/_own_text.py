# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Text that a model writes itself, to train its profile on."""

from collections.abc import Callable

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.profiles._model import LanguageModel

# How texts begin, by family. Only the first token of each is given to the model, so that a batch
# needs no padding. Families take turns.
STARTS = {
    "prose": ("The", "In", "Once", "Dear", "Chapter", "She"),
    "reference": ("#", "Abstract", "Question", "-", "1", "Theorem"),
    "code": ("def", "import", "#include", "function", "class", "SELECT"),
    "records": ("{", "<", "|", "[", "name", "2"),
    "languages": ("Der", "La", "Le", "И", "在", "El"),
}
# Sequences that are written side by side. Each token copies their caches, and a CPU maps large
# copies anew each time.
_BATCH = 12


def write(
    model: LanguageModel, counts: dict[str, int], length: int, seed: int, say: Callable[[str], None]
) -> dict[str, list[list[int]]]:
    """Lets a model write texts: samples at temperature 1, the model's own distribution.

    Args:
        model: The model.
        counts: How many texts of each family of STARTS.
        length: Tokens of a text, the model's first tokens included.
        seed: Of the sampling.
        say: Is told of progress, line by line.

    Returns:
        The texts of each family. None has a special token, such as the end of a text, but for
        the model's first tokens.
    """
    places = [
        (family, STARTS[family][i % len(STARTS[family])])
        for i in range(max(counts.values(), default=0))
        for family in counts
        if i < counts[family]
    ]
    texts: dict[str, list[list[int]]] = {family: [] for family in counts}
    for first in range(0, len(places), _BATCH):
        batch = places[first : first + _BATCH]
        for (family, _), text in zip(
            batch,
            _continue(model, [start for _, start in batch], length, seed + first),
            strict=True,
        ):
            texts[family].append(text)
        say(f"{min(first + _BATCH, len(places))} of {len(places)} texts written")
    return texts


def _continue(model: LanguageModel, starts: list[str], length: int, seed: int) -> list[list[int]]:
    """Writes a batch of texts of `length` tokens."""
    prompts = torch.tensor(
        [model.first_tokens + model.tokenize(start)[:1] for start in starts],
        device=model.model.device,
    )
    special = sorted(set(getattr(model.tokenizer, "all_special_ids", [])))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        written = model.model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            repetition_penalty=1.0,
            suppress_tokens=special or None,
            min_new_tokens=length - prompts.shape[1],
            max_new_tokens=length - prompts.shape[1],
            pad_token_id=special[0] if special else 0,
        )
    texts: list[list[int]] = written.tolist()
    return texts
