# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Kinds of text: what of each is trained on, what is held out, and which kinds share a fold."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Tokens = list[int]

# The part of each text, at its end, that presets are placed on and nothing is trained on.
_HELD_OUT = 0.2
_MOST_FOLDS = 5


@dataclass(frozen=True)
class Kind:
    """A kind of text.

    Attributes:
        name: For reports: of a file, or `own` for text that the model wrote.
        training: Windows that bases are trained on.
        held_out: Windows that presets are placed on.
    """

    name: str
    training: list[Tokens]
    held_out: list[Tokens]


def cut(texts: Sequence[Sequence[int]], length: int, count: int, *, held_out: bool) -> list[Tokens]:
    """Cuts windows out of texts in turns, evenly spread over each.

    Args:
        texts: Tokens of each text.
        length: Tokens of a window.
        count: Windows in all.
        held_out: Out of the last fifth of each text; else out of the rest.

    Raises:
        ValueError: A text is too short.
    """
    windows = []
    for i in range(count):
        text = texts[i % len(texts)]
        cut = math.floor(len(text) * (1 - _HELD_OUT))
        begin, end = (cut, len(text)) if held_out else (0, cut)
        of_text = len(range(i % len(texts), count, len(texts)))
        room = end - begin - length
        if room < 0:
            raise ValueError(
                f"text {i % len(texts) + 1} has {len(text)} tokens, too few: a window has "
                f"{length}, and the last fifth of each text is held out"
            )
        first = begin + math.floor(room * (i // len(texts) + 0.5) / of_text)
        windows.append(list(text[first : first + length]))
    return windows


def kinds_of_texts(
    texts: Mapping[str, Sequence[int]], length: int, windows: int, held_out: int
) -> list[Kind]:
    """Makes a kind of each text.

    Args:
        texts: Tokens of each text, by its name.
        length: Tokens of a window.
        windows: Windows to train on, of all texts together; at least one of each.
        held_out: Windows to hold out, of all texts together; at least one of each.

    Raises:
        ValueError: A text is too short.
    """
    count = len(texts)
    training, held = (
        cut(list(texts.values()), length, max(wanted, count), held_out=which)
        for wanted, which in ((windows, False), (held_out, True))
    )
    return [Kind(name, training[i::count], held[i::count]) for i, name in enumerate(texts)]


def folds_of(kinds: Sequence[Kind]) -> list[list[Kind]]:
    """Shares kinds out among at most five folds, each of which costs a basis of its own.

    What a fold has is measured with a basis of the others.
    """
    count = min(len(kinds), _MOST_FOLDS)
    return [list(kinds[first::count]) for first in range(count)]
