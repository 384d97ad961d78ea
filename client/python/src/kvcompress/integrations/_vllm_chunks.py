# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The chunks of vLLM's offloading: their keys, and their order in a prompt."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Chunk:
    """A chunk in the primary tier.

    Attributes:
        key: Of vLLM.
        number: In the primary tier.
        end: Tokens of the prompt up to its end; None where vLLM does not report it.
    """

    key: bytes
    number: int
    end: int | None


def runs_of(chunks: Sequence[Chunk], tokens: int) -> list[list[Chunk]]:
    """Returns chunks, each of `tokens`, as runs in which each follows the one before in the prompt.

    vLLM keeps the keys of a job as a set, in no order.
    """
    runs: list[list[Chunk]] = []
    for chunk in sorted(chunks, key=lambda chunk: -1 if chunk.end is None else chunk.end):
        last = runs[-1][-1].end if runs else None
        if last is not None and chunk.end == last + tokens:
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    return runs


def parts_of(chunks: Sequence[Chunk], tokens: int, most: int) -> list[list[Chunk]]:
    """Returns runs, cut evenly into parts of `most` chunks or fewer."""
    return [
        [run[index] for index in part]
        for run in runs_of(chunks, tokens)
        for part in np.array_split(np.arange(len(run)), -(-len(run) // most))
    ]


def group_of(key: bytes) -> int:
    """Returns the group of layers that a key is for."""
    return int.from_bytes(key[-4:], "big")


def block_of(key: bytes) -> str:
    """Returns the hash of the block, and of all tokens before it."""
    return key[:-4].hex()


def key_of(block: str, group: int) -> bytes:
    """Returns the key of a block and a group."""
    return bytes.fromhex(block) + group.to_bytes(4, "big")
