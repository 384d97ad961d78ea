# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Asks a model many questions about one KV cache, each as if it were the only one.

Needs torch and transformers. The questions are packed: one pass feeds all of them one behind the
other, positions begin anew behind the prefix for each, and the attention mask hides each question
from the others. So the cache of the prefix is held and read once, however many questions there are.
A cache is what measure.injection calls one. Decoding is greedy.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from measure.injection import to_cache

Ids = list[int]

_PREFIX = -1  # owner of the tokens that every question sees


def agreed(first: Sequence[int], second: Sequence[int]) -> int:
    """Returns how many tokens two sequences have in common before their first difference."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


class _Passes:
    """Passes of a model over a copy of a cache, which grows by the tokens that are fed."""

    def __init__(self, model: Any, cache: Mapping[str, torch.Tensor]) -> None:
        self.model = model
        self.cache = to_cache(model, [cache])
        self.prefix = int(cache["layer_0_key"].shape[2])
        self.owners = torch.full((self.prefix,), _PREFIX, device=model.device)
        self.positions = torch.arange(self.prefix, device=model.device)

    def feed(
        self, ids: torch.Tensor, owners: torch.Tensor, positions: torch.Tensor, keep: torch.Tensor
    ) -> torch.Tensor:
        """Feeds tokens; returns the most likely next token behind each that `keep` points to.

        Args:
            ids: The tokens, [tokens].
            owners: The question that each belongs to, [tokens].
            positions: Of each in the text, [tokens].
            keep: Indices of tokens, [kept].
        """
        self.owners = torch.cat([self.owners, owners])
        self.positions = torch.cat([self.positions, positions])
        with torch.inference_mode():
            logits = self.model(
                ids[None],
                past_key_values=self.cache,
                attention_mask=self._mask(owners, positions),
                position_ids=positions[None],
                use_cache=True,
                logits_to_keep=keep,
            ).logits
        return logits[0].argmax(-1)

    def _mask(self, owners: torch.Tensor, positions: torch.Tensor) -> Any:
        """Masks [1, 1, tokens, cached] to be added to scores; by kind of layer if there are two."""
        own = (self.owners == owners[:, None]) | (self.owners == _PREFIX)
        back = positions[:, None] - self.positions
        causal = own & (back >= 0)
        config = self.model.config
        if "sliding_attention" not in (getattr(config, "layer_types", None) or ()):
            return self._added(causal)
        near = causal & (back < config.sliding_window)
        return {"full_attention": self._added(causal), "sliding_attention": self._added(near)}

    def _added(self, seen: torch.Tensor) -> torch.Tensor:
        least = torch.finfo(self.model.dtype).min
        zeros = torch.zeros(seen.shape, dtype=self.model.dtype, device=seen.device)
        return zeros.masked_fill(~seen, least)[None, None]

    def pack(self, rows: Sequence[Ids]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns ids, owners and positions [tokens] of questions, one behind the other."""
        flat = [
            (token, owner, self.prefix + place)
            for owner, row in enumerate(rows)
            for place, token in enumerate(row)
        ]
        ids, owners, positions = torch.tensor(flat, device=self.model.device).T
        return ids, owners, positions


class Asker:
    """A cache that questions are asked about."""

    def __init__(self, model: Any, cache: Mapping[str, torch.Tensor]) -> None:
        """Takes the model and the cache of a prefix; neither is changed."""
        self.model = model
        self.cache = cache

    def follow(self, questions: Sequence[Ids], answers: Sequence[Ids]) -> list[Ids]:
        """Returns what the model predicts in place of each token of answers that it is fed.

        This is teacher forcing, in one pass. A prediction equals its answer exactly if greedy
        decoding gives that answer; and up to its first difference it is what greedy decoding gives.

        Args:
            questions: The tokens of each question, at least one.
            answers: The tokens of each answer.
        """
        if not any(answers):
            return [[] for _ in answers]
        passes = _Passes(self.model, self.cache)
        rows = [
            [*question, *answer[:-1]] for question, answer in zip(questions, answers, strict=True)
        ]
        keep: list[int] = []
        end = 0
        for row, answer in zip(rows, answers, strict=True):
            end += len(row)
            keep += range(end - len(answer), end)
        at = torch.tensor(keep, device=self.model.device)
        said = iter(passes.feed(*passes.pack(rows), at).tolist())
        return [[next(said) for _ in answer] for answer in answers]

    def generate(
        self,
        questions: Sequence[Ids],
        steps: int,
        stops: frozenset[int] = frozenset(),
        drafts: Sequence[Ids] | None = None,
    ) -> list[Ids]:
        """Returns the greedy continuation of each question.

        Args:
            questions: The tokens of each question, at least one.
            steps: Tokens that are generated, at most.
            stops: Tokens that end a continuation, of which they are the last.
            drafts: What another cache gave with the same arguments. They change nothing but the
                time: tokens up to the first difference are checked in one pass.
        """
        said: list[Ids] = [[] for _ in questions]
        rest = list(range(len(questions)))
        if drafts is not None:
            for i, (found, draft) in enumerate(
                zip(self.follow(questions, drafts), drafts, strict=True)
            ):
                said[i] = draft[: agreed(found, draft)]
            rest = [i for i in rest if len(said[i]) < len(drafts[i])]
        if rest:
            longest = steps - min(len(said[i]) for i in rest)
            more = self._greedy([[*questions[i], *said[i]] for i in rest], longest, stops)
            for i, tokens in zip(rest, more, strict=True):
                said[i] = _until([*said[i], *tokens][:steps], stops)
        return said

    def _greedy(self, questions: Sequence[Ids], steps: int, stops: frozenset[int]) -> list[Ids]:
        """Generates `steps` tokens for each question, fewer once all have come to a stop."""
        passes = _Passes(self.model, self.cache)
        ids, owners, positions = passes.pack(questions)
        keep = torch.tensor([len(each) for each in questions], device=ids.device).cumsum(0) - 1
        every = torch.arange(len(questions), device=ids.device)
        ids, owners, positions = passes.feed(ids, owners, positions, keep), every, positions[keep]
        columns = [ids.tolist()]
        stopped = [token in stops for token in columns[0]]
        while len(columns) < steps and not all(stopped):
            positions = positions + 1
            ids = passes.feed(ids, owners, positions, every)
            columns.append(ids.tolist())
            stopped = [
                was or token in stops for was, token in zip(stopped, columns[-1], strict=True)
            ]
        return [list(row) for row in zip(*columns, strict=True)]


def _until(tokens: Ids, stops: frozenset[int]) -> Ids:
    """Cuts tokens behind the first that stops."""
    end = next((i + 1 for i, token in enumerate(tokens) if token in stops), len(tokens))
    return tokens[:end]
