# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Contexts with tasks in them: what a model must find, copy, look up or complete.

A context is a run of one of the texts of measure.texts with sentences, a table or functions
inserted, which are generated from a seed. Its questions are asked right behind it. There are three
kinds of contexts:

- prose: a few passkeys that differ in what they open, passages to copy, continuations.
- records: many passkeys that differ in a name only, and a table.
- code: source code with short functions in it, whose completions are executed; continuations.
"""

import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

from measure.injection import first_tokens
from measure.texts import TEXTS

ORDER = ("prose", "records", "prose", "code")  # kinds of contexts, over and over
TASKS = ("passkey", "multi-key", "copying", "table", "code", "agreement")

PASSKEYS, KEYS, PASSAGES, SHOTS, ROWS, FUNCTIONS = 8, 16, 16, 3, 10, 12  # in a context
LEAD, COPIED = 48, 16  # tokens of a passage that are given, and that must follow
AGREEMENT = 64  # tokens of a continuation
COMPLETION = 24  # tokens of a completed function, at most

_PROSE = ("news", "encyclopedia", "reference")
_PIECES = {"code": r"(?<=\n\n)"}  # where a text may be interrupted
_SENTENCES = r"(?<=[.!?])(?=\s)"
_SECRETS = (
    *("pass key of the vault", "combination of the safe", "extension of the front desk"),
    *("number of the locker", "code of the garage door", "serial number of the engine"),
    *("identifier of the parcel", "PIN of the alarm"),
)
_NAMES = (
    *("Alice", "Bruno", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Irene", "James"),
    *("Karen", "Louis", "Maria", "Nathan", "Oscar", "Paula", "Quentin", "Rachel", "Simon"),
    *("Teresa", "Ulrich", "Victor", "Wendy", "Xavier", "Yvonne", "Zachary", "Bella", "Conrad"),
    *("Diana", "Edgar", "Fiona", "Gustav"),
)
_CITIES = (
    *("Lisbon", "Oslo", "Cairo", "Lima", "Hanoi", "Quito", "Dublin", "Prague", "Nairobi"),
    *("Madrid", "Athens", "Boston", "Tokyo", "Delhi", "Vienna", "Warsaw"),
)
_VERBS = (
    *("scale", "shift", "adjust", "convert", "combine", "reduce", "extend", "limit", "update"),
    *("round", "correct", "compare"),
)
_NOUNS = (
    *("price", "length", "weight", "speed", "volume", "angle", "budget", "height", "balance"),
    *("offset", "margin", "radius"),
)
_BODIES = (
    *("x * {a} + {b}", "(x - {a}) * {b}", "x % {a} + {b}", "{a} - x // {c}", "x * {a} - {b}"),
    "max(x, {a}) + {b}",
)
_OPENINGS = {
    "prose": (
        *("\n\nThe next day,", "\n\nThe most important point is that", "\n\nIn other words,"),
        "\n\nAs the text says,",
    ),
    "code": (*("\n\n# Tests\nimport", "\n\nclass Cache", "\n\ndef main(", '\n\n    """Returns'),),
}

# Runs in a process of its own, with the name of a function, its source as it must be, and as the
# model completed it. Neither has builtins with which to import or open anything.
_CHECK = """
import resource, sys
megabytes = 1 << 20
for limit, value in (("CPU", 1), ("AS", 256 * megabytes), ("FSIZE", 0), ("NOFILE", 3)):
    resource.setrlimit(getattr(resource, "RLIMIT_" + limit), (value, value))
def values(source):
    names = {"__builtins__": {"abs": abs, "max": max, "min": min}}
    exec(source, names)
    return [names[sys.argv[1]](value) for value in (3, 50, 1234)]
sys.exit(values(sys.argv[2]) != values(sys.argv[3]))
"""
_SECONDS = 10  # for a process to end, of which it may calculate for one


@dataclass(frozen=True)
class Function:
    """A function that is to be completed.

    Attributes:
        name: Its name.
        source: How it is right.
        head: What is given of it: all up to what it returns.
    """

    name: str
    source: str
    head: str


@dataclass(frozen=True)
class Case:
    """A question about a context.

    Attributes:
        task: One of TASKS.
        question: Tokens that are fed behind the context.
        answer: Tokens that must follow; none for what the model itself says with its own cache.
        function: What is executed instead of comparing tokens.
    """

    task: str
    question: list[int]
    answer: list[int]
    function: Function | None = None


@dataclass(frozen=True)
class Context:
    """What a model reads, and the questions about it.

    Attributes:
        kind: One of ORDER.
        text: The name of the text that fills it.
        tokens: All its tokens.
        cases: The questions.
    """

    kind: str
    text: str
    tokens: list[int]
    cases: list[Case]


@cache
def works(function: Function, completion: str) -> bool:
    """Executes a function as a model completed it, in a process of its own with limits.

    Args:
        function: What it must do.
        completion: What follows the head; the function ends with its first line.

    Returns:
        Whether it returns what it must. Errors, endless loops and too much memory are wrong.
    """
    source = function.head + completion.split("\n", 1)[0]
    command = [sys.executable, "-I", "-S", "-c", _CHECK, function.name, function.source, source]
    if "\0" in source:
        return False
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                command, cwd=folder, env={}, capture_output=True, timeout=_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0


def _number(rng: random.Random) -> str:
    return str(rng.randint(10000, 99999))


def _projection(rows: Sequence[Sequence[str]], column: int, name: str) -> str:
    """A table of the names and one other column, which ends where a value must follow."""
    head = ("Name", "City", "Amount")[column]
    lines = [f"| Name | {head} |", "| --- | --- |"]
    lines += [f"| {row[0]} | {row[column]} |" for row in rows]
    return "\n\n" + "\n".join(lines) + f"\n| {name} |"


class Maker:
    """Makes contexts for a model."""

    def __init__(self, tokenizer: Any, prefix: int, seed: int) -> None:
        """Takes the model's tokenizer, the tokens of a context, and the seed of all that varies."""
        self.tokenizer = tokenizer
        self.prefix = prefix
        self.seed = seed
        self.first = first_tokens(tokenizer)

    def contexts(self, count: int) -> Iterator[Context]:
        """Yields contexts: half of them prose, a quarter records, a quarter code.

        They are spread evenly over the texts, and overlap in what fills them, not in what is
        inserted, where a text is too short for that many.

        Raises:
            ValueError: A text is shorter than a context, or a context too short for its inserts.
        """
        kinds = [ORDER[i % len(ORDER)] for i in range(count)]
        texts = []
        for i, kind in enumerate(kinds):
            prose = _PROSE[kinds[:i].count(kind) % len(_PROSE)]
            texts.append("code" if kind == "code" else prose)
        fillers = {name: self._fillers(name, texts.count(name)) for name in dict.fromkeys(texts)}
        make = {"prose": self._prose, "records": self._records, "code": self._code}
        for i, (kind, text) in enumerate(zip(kinds, texts, strict=True)):
            rng = random.Random(f"{self.seed}/{i}")  # noqa: S311  nothing secret
            tokens, cases = make[kind](next(fillers[text]), rng)
            yield Context(kind, text, tokens, cases)

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _case(self, task: str, question: str, answer: str) -> Case:
        return Case(task, self._ids(question), self._ids(answer))

    def _fillers(self, name: str, count: int) -> Iterator[list[list[int]]]:
        """Yields, for each context, the tokens of the text's pieces from its place in it on."""
        text = next(each for each in TEXTS if each.name == name).read()
        pieces = [piece for piece in re.split(_PIECES.get(name, _SENTENCES), text) if piece]
        ids = self.tokenizer(pieces, add_special_tokens=False)["input_ids"]
        ends = list(accumulate(map(len, ids)))
        room = ends[-1] - self.prefix
        if room < 0:
            raise ValueError(f"{name} has {ends[-1]} tokens, and a context {self.prefix}")
        for number in range(count):
            start = room * (2 * number + 1) // (2 * count)
            yield ids[next(i for i, end in enumerate(ends) if end > start) :]

    def _assemble(
        self, filler: Sequence[list[int]], inserts: Sequence[str], rng: random.Random
    ) -> tuple[list[int], list[range]]:
        """Spreads inserts over a filler, in random order, each near the middle of its share.

        Returns:
            The tokens, and for each piece of the filler the places from its start up to the next
            insert.
        """
        inserted = [self._ids(insert) for insert in inserts]
        rng.shuffle(inserted)
        room = self.prefix - len(self.first) - sum(map(len, inserted))
        if room < self.prefix // 4:
            raise ValueError(f"a context of {self.prefix} tokens is too short for its inserts")
        pieces: list[list[int]] = []
        while room > 0:
            pieces.append(filler[len(pieces)][:room])
            room -= len(pieces[-1])
        places = [
            int((i + rng.uniform(0.3, 0.7)) * len(pieces) / len(inserted))
            for i in range(len(inserted))
        ]
        tokens, starts, ends = list(self.first), list[int](), list[int]()
        for i, piece in enumerate(pieces):
            for _ in range(places.count(i)):
                ends.append(len(tokens))
                tokens += inserted.pop()
            starts.append(len(tokens))
            tokens += piece
        ends.append(len(tokens))
        return tokens, [range(start, next(end for end in ends if end > start)) for start in starts]

    def _prose(
        self, filler: Sequence[list[int]], rng: random.Random
    ) -> tuple[list[int], list[Case]]:
        secrets = [(what, _number(rng)) for what in rng.sample(_SECRETS, PASSKEYS)]
        inserts = [f" The {what} is {number}." for what, number in secrets]
        tokens, runs = self._assemble(filler, inserts, rng)
        cases = [
            self._case("passkey", f"\nThe {what} is", f" {number}") for what, number in secrets
        ]
        far = [run[0] for run in runs if len(run) >= LEAD + COPIED]
        far = [start for start in far if start + LEAD + COPIED <= self.prefix * 3 // 4]
        for start in sorted(rng.sample(far, min(PASSAGES, len(far)))):
            middle = start + LEAD
            question = self._ids("\n\n") + tokens[start:middle]
            cases.append(Case("copying", question, tokens[middle : middle + COPIED]))
        return tokens, cases + self._continuations("prose")

    def _continuations(self, kind: str) -> list[Case]:
        return [self._case("agreement", opening, "") for opening in _OPENINGS[kind]]

    def _records(
        self, filler: Sequence[list[int]], rng: random.Random
    ) -> tuple[list[int], list[Case]]:
        names = rng.sample(_NAMES, KEYS + SHOTS + ROWS)
        keys = [(name, _number(rng)) for name in names[:KEYS]]
        cities = rng.sample(_CITIES, SHOTS + ROWS)
        rows = [
            (name, city, str(rng.randint(100, 999)))
            for name, city in zip(names[KEYS:], cities, strict=True)
        ]
        lines = ["| Name | City | Amount |", "| --- | --- | --- |"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        inserts = [f" The pass key of {name} is {number}." for name, number in keys]
        tokens, _ = self._assemble(filler, [*inserts, "\n\n" + "\n".join(lines) + "\n\n"], rng)
        cases = [
            self._case("multi-key", f"\nThe pass key of {name} is", f" {number}")
            for name, number in keys
        ]
        shots = sorted(rng.sample(rows, SHOTS), key=rows.index)
        for row in (row for row in rows if row not in shots):
            for column in (1, 2):
                question = _projection(shots, column, row[0])
                cases.append(self._case("table", question, f" {row[column]}"))
        return tokens, cases

    def _code(
        self, filler: Sequence[list[int]], rng: random.Random
    ) -> tuple[list[int], list[Case]]:
        verbs, nouns = (rng.sample(words, FUNCTIONS) for words in (_VERBS, _NOUNS))
        functions = []
        for name in map("_".join, zip(verbs, nouns, strict=True)):
            head = f"def {name}(x):\n    return"
            constants = {"a": rng.randint(11, 99), "b": rng.randint(11, 99), "c": rng.randint(2, 9)}
            body = rng.choice(_BODIES).format(**constants)
            functions.append(Function(name, f"{head} {body}", head))
        inserts = [f"\n\n{function.source}\n\n" for function in functions]
        tokens, _ = self._assemble(filler, inserts, rng)
        cases = [
            Case("code", self._ids(f"\n\n{function.head}"), [], function) for function in functions
        ]
        return tokens, cases + self._continuations("code")
