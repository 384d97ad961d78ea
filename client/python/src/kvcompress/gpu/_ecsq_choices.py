# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the encoder of `ecsq` chooses of a tensor, by the rules of the service.

Those are in core/coding/identity/tensor_encoder.cc. Numbers here are binary64 unless they say
otherwise.
"""

import math
import re
import struct
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.errors import InvalidArgumentError
from kvcompress.gpu._metrics import Sums
from kvcompress.gpu._place import MOST
from kvcompress.gpu._quantizing import Source
from kvcompress.gpu._rope import Rotation
from kvcompress.payload._codec import Entry
from kvcompress.payload._ecsq import MOST_CHANNELS, matrix

MAX_ERROR = np.float32(0.49)
"""Of an element of `contract`, before it is an exception."""
OUTLIER = 1024.0
"""Magnitudes above it are taken for zeros by `contract`, where they are rare."""

_RARE = 64  # one in so many elements
_MAX_MAGNITUDE = 2.0**96
_MAX_STEPS = 2.0**14  # of the largest value
_KEY_STEP, _RMSE = 0.335, 0.097  # the most of `contract`
_NORM_ERROR = np.float32(0.455)
_TARGET_RMSE, _LEAST_CHANGE = 0.0985, 0.95
_RECENT = 32
_HEADER = struct.Struct("<BBBBHBBf")
_NORMS, _INTEGER_SINKS, _HIDES = 1, 8, 32
_NUMBER = re.compile(r"\+?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


class Steps(NamedTuple):
    """What a preset stands for.

    Attributes:
        text: The parameters in their one form.
        key: The step of keys over the root mean square of what their channels leave.
        value: The same of values.
        contract: Whether bounds are to hold.
        recent: Whether the newest tokens have half the step.
    """

    text: str
    key: float
    value: float
    contract: bool = False
    recent: bool = False


_PRESETS = (
    Steps("contract", 0.43, 0.41, contract=True),
    Steps("high", 0.36, 0.43),
    Steps("max", 0.6, 0.8, recent=True),
)


def read_steps(parameters: str) -> Steps:
    """Reads the parameters of the codec: a preset, by default `contract`, or two steps.

    Raises:
        InvalidArgumentError: They are none.
    """
    for preset in _PRESETS:
        if preset.text == (parameters or "contract"):
            return preset
    names = ("key_step", "value_step")
    items = [item.rpartition("=") for item in parameters.split(",")]
    texts = {name or names[min(i, 1)]: text for i, (name, _, text) in enumerate(items)}
    positional = [not name for name, _, _ in items]
    numbers = [_read_step(texts.get(name, "")) for name in names]
    if len(items) != 2 or None in numbers or positional == [False, True]:
        raise InvalidArgumentError(
            f"ecsq has no parameters {parameters!r}: it takes a preset, contract, high or max, or "
            "two steps from 0.05 to 8 with at most four digits after the point, such as 0.52,0.52",
            reason="INVALID_CODEC_OPTION",
            field="options.codec",
        )
    key, value = (float(number or 0) for number in numbers)
    return Steps(f"{_shortest(key)},{_shortest(value)}", key, value)


def _read_step(text: str) -> float | None:
    """Reads a step in any decimal spelling."""
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    rounded = math.floor(value * 10000 + 0.5) / 10000 if value < 100 else math.inf
    return rounded if abs(value - rounded) <= 1e-9 and 0.05 <= rounded <= 8 else None


def _shortest(step: float) -> str:
    """The form of a step without what could be left out."""
    return f"{step:.4f}".rstrip("0").rstrip(".")


def round_to_step(value: float) -> np.float32:
    """The nearest step of 11 bits, within bounds, ties to even."""
    bits = int(np.float32(min(max(value, 2.0**-100), 2.0**100)).view(np.uint32))
    return np.uint32((bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFF).view(np.float32)


def keeps_contract(sums: Sums) -> bool:
    """Whether a tensor that lost this keeps the bounds of `contract`."""
    x2, y2, _, e2, _, _, largest, _ = sums.totals
    if largest == 0:
        return True
    product = (x2 + y2 - e2) / 2
    return (
        largest < 0.4999
        and e2 < 0.0999 * 0.0999 * sums.elements
        and x2 > 63.2 * max(e2, 1e-292)
        and product > 0.9901 * math.sqrt(x2) * math.sqrt(y2)
    )


def _nothing() -> torch.Tensor:
    """What is not known yet."""
    return torch.empty(0)


@dataclass
class Job:
    """A tensor that is encoded, and what was chosen for it so far.

    Attributes:
        source: The tensor.
        tensor: It, as [batches, heads, tokens, channels] or, of another rank, in C order.
        steps: Of the preset.
        hides: Whether outliers are taken for zeros.
        rotation: That its keys have.
        codes: i32, of the norm of each token of each head, not bounded.
        bounded: The same, bounded.
        scales: f32, what its values are multiplied with, one after the other.
        means: f64, of the channels of all blocks.
        variances: The same.
        wanted: The step that is to be tried next.
        least: The least step.
        step: The one that is tried.
    """

    source: Source
    tensor: torch.Tensor
    steps: Steps
    hides: bool = False
    rotation: Rotation | None = None
    codes: torch.Tensor = field(default_factory=_nothing)
    bounded: torch.Tensor = field(default_factory=_nothing)
    scales: list[torch.Tensor] = field(default_factory=list)
    means: torch.Tensor = field(default_factory=_nothing)
    variances: torch.Tensor = field(default_factory=_nothing)
    wanted: float = 0.0
    least: float = 0.0
    step: np.float32 = field(default_factory=lambda: np.float32(1))

    @property
    def entry(self) -> Entry:
        """What the manifest says of it."""
        return self.source.entry

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, tokens and channels."""
        return matrix(self.entry.shape)

    @property
    def role(self) -> str:
        """The role as it counts: only tensors of four dimensions have one."""
        return self.entry.role if len(self.entry.shape) == 4 else "-"

    @property
    def norms(self) -> bool:
        """Whether each token of a head has its norm."""
        return self.role == "v"

    @property
    def flags(self) -> int:
        """Of the payload's header."""
        turned = 0 if self.rotation is None else self.rotation.flags
        return (_NORMS if self.norms else _INTEGER_SINKS) | turned

    @property
    def kernel_flags(self) -> int:
        """What kernels take for the flags."""
        return self.flags | (_HIDES if self.hides else 0)

    def header(self) -> bytes:
        """The header of the payload."""
        recent = min(_RECENT, self.shape[1] // 16) if self.steps.recent else 0
        turn, runs = b"", 0
        if self.rotation is not None:
            turn, runs = self.rotation.header(), len(self.rotation.runs)
        shifts = (3 if self.norms else 0, recent, int(self.steps.recent))
        return _HEADER.pack(1, self.flags, 1, *shifts, runs, self.step) + turn

    def codable(self, largest: float) -> bool:
        """Whether blocks can have its elements, of which that is the largest magnitude."""
        heads, tokens, channels = self.shape
        return channels <= MOST_CHANNELS and max(heads, tokens) < MOST and largest <= _MAX_MAGNITUDE

    def hide(self, outliers: int) -> None:
        """Takes so many outliers for zeros if they are rare."""
        self.hides = outliers <= self.tensor.numel() // _RARE

    def want(self, square_sum: float, count: int, largest: float) -> None:
        """Finds the step to begin with.

        Args:
            square_sum: Of what is left of so many values without their means.
            count: How many.
            largest: The largest magnitude among them.
        """
        size = math.sqrt(square_sum / count) if count else 0.0
        self.least = largest / _MAX_STEPS
        self.wanted = (self.steps.value if self.norms else self.steps.key) * size
        if self.steps.contract and not self.norms:
            self.wanted = min(self.wanted, _KEY_STEP)

    @property
    def most_norm(self) -> float:
        """Norms above it are bounded with the step to begin with."""
        return float(2 * _NORM_ERROR) / self.wanted

    def limit(self, norm: float) -> None:
        """Lowers the step to begin with for norms of this root mean square."""
        self.wanted = min(self.wanted, _RMSE * math.sqrt(12.0) / norm)

    def begin_trial(self) -> None:
        """Takes the step that is wanted; bounds norms by it."""
        self.step = round_to_step(max(self.wanted, self.least))
        if self.norms and self.steps.contract:
            heads, tokens, _ = self.shape
            before, own = self.bounded, self.codes.reshape(heads, tokens)
            bounded = own.clamp(max=self._most_code(0))
            bounded[:, 0] = own[:, 0].clamp(max=self._most_code(3))
            self.bounded = bounded.reshape(-1)
            # Where both are 0 they have no quotient.
            quotient = norms_of(before) / norms_of(self.bounded)
            self.scales.append(torch.where(before == self.bounded, 1, quotient))

    def _most_code(self, shift: int) -> int:
        """The largest code of a norm whose token has the step so often halved."""
        most = 2 * _NORM_ERROR * np.float32(1 << shift) / self.step
        return max(int(np.float32(most).view(np.uint32)) >> 20, 1)

    def finer(self, sums: Sums) -> bool:
        """Lowers the step after a trial that lost this; whether it can be lower."""
        if self.wanted < self.least:
            return False
        x = math.sqrt(sums.totals[3] / sums.elements)
        self.wanted *= min(_LEAST_CHANGE, _TARGET_RMSE / x)
        return True


def norms_of(codes: torch.Tensor) -> torch.Tensor:
    """Norms f32 of codes i32."""
    return (codes << 20).view(torch.float32)


def codes_of(squares: torch.Tensor, channels: int) -> torch.Tensor:
    """Codes i32 of the norms of tokens whose channels have these sums of squares, f64."""
    # Where the divisor is a number of the host, a device multiplies by its inverse.
    divisor = torch.full((1,), channels, dtype=torch.float64, device=squares.device)
    bits = torch.sqrt(squares / divisor).to(torch.float32).view(torch.int32)
    codes = (bits + 0x7FFFF + (bits >> 20 & 1)) >> 20
    return torch.where(codes < 8, 0, codes.clamp(max=0x7F7)).to(torch.int32)
