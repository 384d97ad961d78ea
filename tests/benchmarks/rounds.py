# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Tasks that take turns, so that what slows a machine for a while slows all of them."""

from collections.abc import Callable
from typing import TypeVar

Key = TypeVar("Key")
Found = TypeVar("Found")


def in_turns(rounds: int, tasks: dict[Key, Callable[[], Found]]) -> dict[Key, list[Found]]:
    """Returns what each task returned in each of the rounds; one before them is not counted."""
    found: dict[Key, list[Found]] = {key: [] for key in tasks}
    for number in range(rounds + 1):
        for key, task in tasks.items():
            returned = task()
            if number > 0:
                found[key].append(returned)
    return found
