# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Finds the rotations of keys on the device, by the rules of the service.

Those are in core/quantization/rope.cc: the rotation is taken that leaves the largest mean over
tokens, of the first heads and tokens.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._ecsq_plan import Plan
from kvcompress.gpu._ecsq_quantize_kernels import turn_back_kernel
from kvcompress.gpu._rope import Rotation
from kvcompress.gpu._upload import send_all

_HEADS, _TOKENS, _GLANCE_TOKENS = 4, 128, 64  # the first token is left out
_FEWEST = 4  # tokens behind it
_LEFT = 6  # candidates after a glance
_CLEARLY = 0.02  # of the energy


class _Trial(NamedTuple):
    """Heads of a tensor that are rotated inversely: by None as they are."""

    job: int
    heads: int
    tokens: int
    pairs: int
    rotation: Rotation | None


class _Found(NamedTuple):
    """The energy of the means over tokens that a trial leaves, and that of its channels."""

    mean: float
    energy: float


def find_rotations(plan: Plan, candidates: Sequence[Sequence[Rotation]]) -> list[Rotation | None]:
    """Returns the rotation of each tensor of a plan, None for none that is clear."""
    left = [
        list(each) if job.shape[1] > _FEWEST else []
        for job, each in zip(plan.jobs, candidates, strict=True)
    ]
    glances = [
        _Trial(number, 1, min(plan.jobs[number].shape[1] - 1, _GLANCE_TOKENS), each.pairs, each)
        for number, rotations in enumerate(left)
        for each in rotations
        if len(rotations) > _LEFT
    ]
    energies: dict[int, list[float]] = {}
    for trial, found in zip(glances, _run(plan, glances), strict=True):
        energies.setdefault(trial.job, []).append(found.mean)
    for number, means in energies.items():
        best = np.argsort(-np.array(means), kind="stable")[:_LEFT]
        left[number] = [left[number][i] for i in best.tolist()]
    return _choose(plan, left)


def _choose(plan: Plan, left: Sequence[Sequence[Rotation]]) -> list[Rotation | None]:
    """Chooses among few candidates by more tokens."""
    trials = []
    for number, rotations in enumerate(left):
        heads, tokens, _ = plan.jobs[number].shape
        size = min(heads, _HEADS), min(tokens - 1, _TOKENS)
        for rotation in rotations:
            trials.append(_Trial(number, *size, rotation.pairs, None))
            trials.append(_Trial(number, *size, rotation.pairs, rotation))
    best: dict[int, tuple[float, Rotation]] = {}
    found = _run(plan, trials)
    for trial, plain, turned in zip(trials[1::2], found[::2], found[1::2], strict=True):
        before = best.get(trial.job)
        clear = turned.mean > plain.mean + _CLEARLY * plain.energy
        if trial.rotation and clear and (before is None or turned.mean > before[0]):
            best[trial.job] = turned.mean, trial.rotation
    return [best[number][1] if number in best else None for number in range(len(left))]


def _run(plan: Plan, trials: Sequence[_Trial]) -> list[_Found]:
    """Rotates and sums, and waits for the sums."""
    if not trials:
        return []
    rows, turns, position = [], [], 0
    for trial in trials:
        turn = _turn(trial.rotation, trial.pairs)
        own = int(trial.rotation is not None and trial.rotation.interleaved)
        for head in range(trial.heads):
            rows.append([trial.job, head, trial.tokens, trial.pairs, 0, own, position])
            position += 2 * trial.pairs
        turns.append(np.tile(turn, trial.heads))
    arrays: list[npt.NDArray[np.generic]] = [np.array(rows, np.int64), np.concatenate(turns)]
    sent, angles = send_all(arrays, plan.device)
    sums = torch.empty_like(angles)
    energies = torch.empty(len(rows), dtype=torch.float64, device=plan.device)
    turn_back_kernel[(len(rows),)](
        *(sent, plan.tensors, plan.places, angles, sums, energies),
        DTYPE=plan.jobs[0].entry.dtype,
        BP=1 << (max(trial.pairs for trial in trials) - 1).bit_length(),
        num_warps=1,
        enable_fp_fusion=False,
    )
    numbers, squares = sums.cpu().numpy().astype(np.float64), energies.cpu().numpy()
    found, row, at = [], 0, 0
    for trial in trials:
        end = at + 2 * trial.pairs * trial.heads
        # One after the other, as the service adds.
        mean = np.add.accumulate(numbers[at:end] ** 2)[-1] / trial.tokens
        energy = float(squares[row : row + trial.heads].sum())
        found.append(_Found(float(mean), energy))
        row, at = row + trial.heads, end
    return found


def _turn(rotation: Rotation | None, pairs: int) -> npt.NDArray[np.float32]:
    """The cosines and sines of a token's turn."""
    if rotation is None:
        return np.repeat(np.array([1, 0], np.float32), pairs)
    return rotation.turn()
