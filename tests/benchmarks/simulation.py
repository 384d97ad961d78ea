# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""How long many threads would take for tensors whose pieces were timed one after the other."""

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """What one thread does alone, and then pieces that threads share."""

    alone: float
    pieces: tuple[float, ...]


def stages(times: Sequence[float]) -> list[Stage]:
    """Reads the output of kvb_trace."""
    found, at = [], 0
    while at < len(times):
        count = int(times[at + 1])
        found.append(Stage(times[at], tuple(times[at + 2 : at + 2 + count])))
        at += 2 + count
    return found


def work(tensor: Sequence[Stage]) -> float:
    """Seconds of one thread."""
    return sum(stage.alone + sum(stage.pieces) for stage in tensor)


class _Tensor:
    """One that is being worked on, by its own thread and by others."""

    def __init__(self, todo: Sequence[Stage]) -> None:
        """Begins with the first stage."""
        self.todo = list(todo)
        self.pieces: list[float] = []  # that nobody has begun
        self.helpers = 0  # threads besides its own
        self.waits = False  # whether its own waits for these

    def own_work(self) -> float | None:
        """Seconds of what its own thread does next; None where it waits, or all is done."""
        if self.pieces:
            return self.pieces.pop(0)
        self.waits = self.helpers > 0
        if self.waits or not self.todo:
            return None
        stage = self.todo.pop(0)
        self.pieces = list(stage.pieces)
        return stage.alone


def simulate(tensors: Sequence[Sequence[Stage]], threads: int, places: int) -> float:
    """Seconds until all are done, by the rules of core/pipeline/job_queue.cc.

    A thread without work helps the first tensor that has pieces left and fewer than `places`
    threads; else it begins another tensor. The thread that began one goes on with it, and waits
    for the pieces that others have.
    """
    queue = [_Tensor(tensor) for tensor in tensors]
    begun: list[_Tensor] = []
    # When a thread is free again, a number that distinguishes them, its tensor, whether it helps.
    events: list[tuple[float, int, _Tensor, bool]] = []
    idle, now = threads, 0.0
    number = itertools.count()

    def after(seconds: float, tensor: _Tensor, helps: bool) -> None:
        heapq.heappush(events, (now + seconds, next(number), tensor, helps))

    def go_on(tensor: _Tensor) -> bool:
        seconds = tensor.own_work()
        if seconds is not None:
            after(seconds, tensor, False)
        return seconds is not None

    while True:
        while idle > 0:
            helped = next((t for t in begun if t.pieces and t.helpers + 1 < places), None)
            if helped is not None:
                helped.helpers += 1
                after(helped.pieces.pop(0), helped, True)
            elif queue:
                begun.append(queue.pop(0))
                go_on(begun[-1])
            else:
                break
            idle -= 1
        if not events:
            return now
        now, _, tensor, helps = heapq.heappop(events)
        if helps:
            tensor.helpers -= 1
            idle += 1
            if tensor.waits and tensor.helpers == 0 and not go_on(tensor):
                idle += 1
        elif not go_on(tensor) and not tensor.waits:
            idle += 1
