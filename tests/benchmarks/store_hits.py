#!/usr/bin/env python3
# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""How much of what engines compute a store of some capacity would have, for a trace of chats.

    tests/benchmarks/store_hits.py --users 200 --token-bytes 131072 --ratio 5.4

The trace is generated, the same for the same options. Users hold conversations on weekdays. Each
begins with one of a few system prompts; some go on with a document that others ask about too; each
turn adds a question and an answer. A user goes back to an earlier conversation now and then. The
store follows the rules of kvcompress.store: artefacts of 512 tokens, those that were not used for
longest evicted first down to 90 % of the capacity, and a hit ends at the first artefact that is
not there.
"""

import argparse
import itertools
import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

RUN = 512  # tokens of an artefact
LOW = 0.9
DAY = 8 * 3600.0  # seconds of work
CAPACITIES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)  # of all that was ever stored
Run = tuple[object, ...]


@dataclass(frozen=True)
class Options:
    """Of the trace.

    Attributes:
        users: How many.
        days: Of work.
        seed: Of the random numbers.
    """

    users: int
    days: int
    seed: int = 0


@dataclass(frozen=True)
class Prompt:
    """What an engine is asked.

    Attributes:
        time: In seconds.
        runs: Its artefacts, from the first token on.
        returns: Whether it begins a conversation, or comes back to one.
    """

    time: float
    runs: list[Run]
    returns: bool


@dataclass
class Chat:
    """A conversation: what it begins with, and the tokens so far.

    Attributes:
        beginning: Name and tokens of each shared part.
        name: Of what is its own.
        tokens: Of what is its own.
    """

    beginning: tuple[tuple[str, int], ...]
    name: str
    tokens: int = 0

    def runs(self) -> list[Run]:
        """The artefacts of the prompt: each is named by all tokens up to its end."""
        parts, ends, end = [*self.beginning, (self.name, self.tokens)], [], 0
        for name, tokens in parts:
            ends.append((name, end := end + tokens))
        found, names = list[Run](), list[str]()
        remaining = iter(ends)
        name, until = next(remaining)
        for stop in range(RUN, end + 1, RUN):
            while stop > until:
                names.append(name)
                name, until = next(remaining)
            found.append((*names, name, stop))
        return found


@dataclass(frozen=True)
class Result:
    """The result of a capacity.

    Attributes:
        hits: Tokens that were there, of those that were asked for.
        vain: Artefacts that were evicted before they were read, of those that were evicted.
    """

    hits: float
    returns: float
    vain: float


def requests(options: Options) -> list[Prompt]:
    """Returns all prompts, by time."""
    choose = random.Random(options.seed)  # noqa: S311
    systems = [(f"system {number}", choose.randint(500, 3000)) for number in range(5)]
    count = max(3, options.users // 4)
    documents = [(f"document {number}", choose.randint(2000, 20000)) for number in range(count)]
    popular = [1 / (number + 1) for number in range(count)]
    found: list[Prompt] = []
    for user in range(options.users):
        chats: list[Chat] = []
        for day in range(options.days):
            now = 86400.0 * day + choose.uniform(0, DAY / 4)
            while now < 86400.0 * day + DAY:
                if chats and choose.random() < 0.3:
                    chat = chats[-1 - min(int(choose.expovariate(0.3)), len(chats) - 1)]
                else:
                    beginning = [choose.choices(systems, (8, 4, 2, 1, 1))[0]]
                    if choose.random() < 0.4:
                        beginning.append(choose.choices(documents, popular)[0])
                    chats.append(chat := Chat(tuple(beginning), f"{user} {len(chats)}"))
                for turn in range(1 + int(choose.expovariate(0.25))):
                    chat.tokens += choose.randint(30, 400)
                    found.append(Prompt(now, chat.runs(), turn == 0))
                    chat.tokens += choose.randint(100, 800)
                    now += choose.expovariate(1 / 90)
                now += choose.expovariate(1 / 1800)
    return sorted(found, key=lambda prompt: prompt.time)


def simulate(trace: Sequence[Prompt], capacity: int) -> Result:
    """Counts hits with space for so many artefacts."""
    store: OrderedDict[Run, bool] = OrderedDict()  # with whether it was read
    asked, hits = [0, 0], [0, 0]
    evicted = vain = 0
    for prompt in trace:
        there = len(list(itertools.takewhile(store.__contains__, prompt.runs)))
        asked[prompt.returns] += len(prompt.runs)
        hits[prompt.returns] += there
        for index, run in enumerate(prompt.runs):
            store[run] = index < there or store.get(run, False)
            store.move_to_end(run)
        if len(store) > capacity:
            while len(store) > LOW * capacity:
                _, was_read = store.popitem(last=False)
                evicted += 1
                vain += not was_read
    return Result(sum(hits) / sum(asked), hits[1] / asked[1], vain / evicted if evicted else 0.0)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--days", type=int, default=5)
    parser.add_argument("--token-bytes", type=int, default=131072, help="of the cache, raw")
    parser.add_argument("--ratio", type=float, default=5.34, help="of the codec")
    given = parser.parse_args()
    trace = requests(Options(given.users, given.days))
    every = {run for prompt in trace for run in prompt.runs}
    asked = sum(len(prompt.runs) for prompt in trace)
    size = RUN * given.token_bytes / given.ratio / 1e9  # GB of an artefact
    print(
        f"{given.users} users, {given.days} days, {len(trace)} prompts, "
        f"{RUN * asked / len(trace):.0f} tokens of each in whole artefacts. All artefacts: "
        f"{len(every) * size:.0f} GB, {len(every) * size / given.users:.2f} GB a user.\n"
    )
    print("| capacity | of all | GB a user | hits | hits of first prompts | evicted in vain |")
    print("| --- | --- | --- | --- | --- | --- |")
    for part in CAPACITIES:
        capacity = max(1, int(part * len(every)))
        found = simulate(trace, capacity)
        print(
            f"| {capacity * size:.0f} GB | {part:.0%} | {capacity * size / given.users:.2f} | "
            f"{found.hits:.1%} | {found.returns:.1%} | {found.vain:.0%} |"
        )


if __name__ == "__main__":
    main()
