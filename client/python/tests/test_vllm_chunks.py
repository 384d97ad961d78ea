# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.integrations._vllm_chunks: the order of chunks. tests/engines has vLLM itself."""

import random

from kvcompress.integrations._vllm_chunks import Chunk, block_of, group_of, parts_of, runs_of


def chunk(end: int | None, number: int = 0) -> Chunk:
    """A chunk that ends there."""
    return Chunk(b"key", number, end)


def test_chunks_in_any_order() -> None:
    """They are one run, in the order of their tokens."""
    chunks = [chunk(128 * (index + 1), index) for index in range(20)]
    shuffled = random.Random(1).sample(chunks, len(chunks))
    assert runs_of(shuffled, 128) == [chunks]


def test_a_gap_ends_a_run() -> None:
    """As do the same tokens twice, which another prompt may begin with."""
    ends = [512, 128, 256, 640, 1024, 640]
    runs = [[each.end for each in run] for run in runs_of([chunk(end) for end in ends], 128)]
    assert runs == [[128, 256], [512, 640], [640], [1024]]


def test_chunks_at_unknown_places_stand_alone() -> None:
    """Nothing says that one follows another."""
    runs = runs_of([chunk(None, 1), chunk(128), chunk(None, 2)], 128)
    assert [[each.number for each in run] for run in runs] == [[1], [2], [0]]


def test_parts_of_runs() -> None:
    """None has more chunks than there may be, and those of a run are about as long."""
    chunks = [chunk(128 * (index + 1), index) for index in (0, 1, 2, 3, 4, 7, 8)]
    parts = [[each.number for each in part] for part in parts_of(chunks, 128, 3)]
    assert parts == [[0, 1, 2], [3, 4], [7, 8]]
    assert parts_of([], 128, 3) == []


def test_keys() -> None:
    """A hash, and the group."""
    key = bytes(range(32)) + (3).to_bytes(4, "big")
    assert (group_of(key), block_of(key)) == (3, bytes(range(32)).hex())
