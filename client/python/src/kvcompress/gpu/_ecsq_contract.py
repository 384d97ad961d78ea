# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Encodes tensors with `ecsq:contract`: with finer steps until the bounds hold."""

from collections.abc import Sequence

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._ecsq_choices import Job, keeps_contract, norms_of
from kvcompress.gpu._ecsq_encoding import Coded, EcsqEncoding
from kvcompress.gpu._ecsq_integers import integer_payload, restore_integers
from kvcompress.gpu._ecsq_plan import Plan
from kvcompress.gpu._metrics import Pair, Sums, compare

_TRIALS = 24

Pieces = list[bytes | torch.Tensor]
"""Of a payload, in order."""


def encode_contract(jobs: Sequence[Job], scratch: int) -> list[Pieces]:
    """Encodes measured tensors of one type; integers are taken where they alone keep the bounds.

    Args:
        jobs: The tensors.
        scratch: Bytes of the buffers of blocks.
    """
    _limit_steps(jobs)
    pending, last, kept = list(range(len(jobs))), dict[int, Pieces](), set[int]()
    for _ in range(_TRIALS):
        if not pending:
            break
        own = [jobs[i] for i in pending]
        plan, coded, lost = _try(own, scratch)
        again = []
        for place, number in enumerate(pending):
            if not coded.fits(plan, place):
                continue
            last[number] = coded.pieces(plan, place)
            if keeps_contract(lost[place]):
                kept.add(number)
            elif jobs[number].finer(lost[place]):
                again.append(number)
        pending = again
    return [
        last[number] if number in kept else _integers(job, last.get(number))
        for number, job in enumerate(jobs)
    ]


def _try(jobs: Sequence[Job], scratch: int) -> tuple[Plan, Coded, list[Sums]]:
    """Encodes with the steps that are wanted next, and measures what that loses."""
    for job in jobs:
        job.begin_trial()
    plan = Plan(jobs, scratch)
    encoding = EcsqEncoding(plan)
    if any(job.norms for job in jobs):
        # Norms have other bounds.
        encoding.measure()
    coded = encoding.encode(rate=False, checks=True)
    pairs = [
        Pair(job.tensor.reshape(-1), restored.reshape(-1), job.entry.dtype, False)
        for job, restored in zip(jobs, encoding.restored, strict=True)
    ]
    return plan, coded, compare(pairs)


def _limit_steps(jobs: Sequence[Job]) -> None:
    """Lowers the steps of values by the size of their norms."""
    of = [job for job in jobs if job.norms and job.wanted > 0]
    squares = []
    for job in of:
        norms = norms_of(job.codes).to(torch.float64).clamp(max=job.most_norm)
        squares.append((norms * norms).mean())
    if squares:
        for job, square in zip(of, torch.stack(squares).tolist(), strict=True):
            job.limit(square**0.5)


def _integers(job: Job, coded: Pieces | None) -> Pieces:
    """The payload of integers, but what was coded where that keeps the bounds no worse."""
    payload = integer_payload(job)
    if coded is None:
        return [payload]
    restored = restore_integers(payload, job)
    source = job.tensor.reshape(-1)
    (lost,) = compare([Pair(source, restored.reshape(-1), job.entry.dtype, False)])
    return [payload] if keeps_contract(lost) else coded
