# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Rotary embeddings that keys may have, by the rules of the service (core/quantization/rope*)."""

import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvcompress.errors import InvalidArgumentError
from kvcompress.payload._ecsq_block import increments_of, rotation_angles
from kvcompress.v1 import rope_pb2

_COMMON = (1e4, 5e5, 1e6, 1e5, 5e6, 8e6, 1e7, 2e6, 5e4, 1.5e5, 2.5e5)
_ONE = 1 << 31  # of multipliers
_MOST_RUNS = 255


class Rotation(NamedTuple):
    """A rotation as payloads of `ecsq` have it.

    Attributes:
        embedding: What it is of, with its pairs known.
        ratio: Of the increments of neighbouring pairs, in 2^-64.
        pairs: That are rotated, of a head whose first channels they are.
        whole: Whether those are all channels.
        runs: Length and multiplier, in 2^-31, of pairs whose increments are multiplied.
    """

    embedding: rope_pb2.RopeEmbedding
    ratio: int
    pairs: int
    whole: bool
    runs: tuple[tuple[int, int], ...]

    @property
    def interleaved(self) -> bool:
        """Whether pairs are neighbouring channels."""
        return self.embedding.pairs == rope_pb2.ROPE_PAIRS_INTERLEAVED

    @property
    def flags(self) -> int:
        """Of the header of a payload."""
        return 2 | 4 * self.interleaved | 16 * (not self.whole or bool(self.runs))

    def header(self) -> bytes:
        """What stands behind the step."""
        if not self.flags & 16:
            return struct.pack("<Q", self.ratio)
        runs = b"".join(struct.pack("<HI", *run) for run in self.runs)
        return struct.pack("<QHHB3x", self.ratio, 0, self.pairs, 0) + runs

    def turn(self) -> npt.NDArray[np.float32]:
        """The cosines, then the sines, of the turn of each pair in one token."""
        return _turn(self.ratio, self.pairs, self.runs)


class Declared(NamedTuple):
    """What a caller says of the rotary embedding of keys.

    Attributes:
        parameters: All that a model's configuration says; None where there is none.
        theta: Its base, 0 for none; None where it is to be found out.
    """

    parameters: rope_pb2.RopeParameters | None = None
    theta: float | None = None

    def __bool__(self) -> bool:
        """Whether it says anything."""
        return self.parameters is not None or self.theta is not None

    def embeddings(self, layer: int | None) -> Sequence[rope_pb2.RopeEmbedding]:
        """Those that a layer may have; those that are common where nothing is said."""
        if self.parameters is None:
            bases = _COMMON if self.theta is None else (self.theta,) if self.theta else ()
            return [rope_pb2.RopeEmbedding(theta=base) for base in bases]
        numbers = self.parameters.layers
        if layer is None or layer >= len(numbers):
            return self.parameters.embeddings
        number = numbers[layer]
        return [self.parameters.embeddings[number - 1]] if number else []

    def rotations(self, name: str, layer: int | None, channels: int) -> list[Rotation]:
        """The rotations that a key of so many channels may have.

        Raises:
            InvalidArgumentError: Its heads cannot have what the configuration says.
        """
        found: list[Rotation] = []
        for embedding in self.embeddings(layer):
            size = embedding.rotary_channels or channels // 2 * 2
            if self.parameters is not None and not 0 < size <= channels:
                raise InvalidArgumentError(
                    f"tensor {name!r}: a head of {channels} channels cannot have the rotary "
                    "embedding that was declared",
                    reason="INVALID_OPTIONS",
                    tensor=name,
                    field="options.rope",
                )
            if self.parameters is not None or channels % 2 == 0:
                found += _of_embedding(embedding, channels, size // 2)
        return found


def read_theta(text: str) -> float | None:
    """Reads the base in the metadata of a cache; None for what is no base."""
    try:
        theta = float(text)
    except ValueError:
        return None
    return theta if is_theta(theta) else None


def is_theta(theta: float) -> bool:
    """Whether it can be a base, or 0 for none."""
    return theta == 0 or 1 <= theta <= 1e12


def _of_embedding(embedding: rope_pb2.RopeEmbedding, channels: int, pairs: int) -> list[Rotation]:
    """The rotations of an embedding, by its pairs."""
    ratio = _ratio(embedding.theta, pairs)
    runs: list[tuple[int, int]] = []
    for multiplier in _multipliers(embedding, pairs):
        rounded = int(multiplier * _ONE + 0.5)
        length = runs.pop()[0] if runs and runs[-1][1] == rounded else 0
        runs.append((length + 1, rounded))
    while runs and runs[-1][1] == _ONE:
        runs.pop()
    if len(runs) > _MOST_RUNS:
        return []
    found = []
    for kind in (rope_pb2.ROPE_PAIRS_HALVES, rope_pb2.ROPE_PAIRS_INTERLEAVED):
        if embedding.pairs not in (rope_pb2.ROPE_PAIRS_UNSPECIFIED, kind):
            continue
        own = rope_pb2.RopeEmbedding()
        own.CopyFrom(embedding)
        own.pairs = kind
        found.append(Rotation(own, ratio, pairs, 2 * pairs == channels, tuple(runs)))
    return found


@lru_cache(maxsize=64)
def _ratio(theta: float, pairs: int) -> int:
    """theta^(-1/pairs) in 2^-64, by integers."""
    target, ratio = 2.0**64 / theta, 0
    for bit in range(63, -1, -1):
        candidate = ratio | 1 << bit
        if float(_power(candidate, pairs)) <= target:
            ratio = candidate
    return ratio


@lru_cache(maxsize=256)
def _turn(ratio: int, pairs: int, runs: tuple[tuple[int, int], ...]) -> npt.NDArray[np.float32]:
    """See `Rotation.turn`."""
    multipliers = [multiplier for length, multiplier in runs for _ in range(length)]
    increments = increments_of(ratio, pairs, multipliers)
    cosine, sine = rotation_angles(increments, np.ones(1, np.int64))
    return np.concatenate([cosine[0], sine[0]])


def _power(ratio: int, power: int) -> int:
    """A power of a number, both in 2^-64."""
    result = (1 << 64) - 1
    while power:
        if power & 1:
            result = result * ratio >> 64
        ratio = ratio * ratio >> 64
        power >>= 1
    return result


def _multipliers(embedding: rope_pb2.RopeEmbedding, pairs: int) -> npt.NDArray[np.float64]:
    """What the frequencies of the base are multiplied with."""
    kind = embedding.scaling.WhichOneof("scaling")
    if kind == "linear":
        return np.full(pairs, 1 / embedding.scaling.linear.factor)
    if kind == "llama3":
        waves = [2 * math.pi * math.pow(embedding.theta, pair / pairs) for pair in range(pairs)]
        return np.array([_llama3(embedding.scaling.llama3, wave) for wave in waves])
    if kind == "yarn":
        return np.array(_yarn(embedding, pairs))
    return np.ones(pairs)


def _llama3(scaling: rope_pb2.RopeScaling.Llama3, wave: float) -> float:
    """The multiplier of a wave of so many tokens."""
    has_low, has_high = (
        scaling.HasField("low_frequency_factor"),
        scaling.HasField("high_frequency_factor"),
    )
    low = scaling.low_frequency_factor if has_low else 1.0
    high = scaling.high_frequency_factor if has_high else 4.0
    smooth = (scaling.original_positions / wave - low) / (high - low)
    whole = min(max(smooth, 0.0), 1.0)
    return (1 - whole) / scaling.factor + whole


def _yarn(embedding: rope_pb2.RopeEmbedding, pairs: int) -> list[float]:
    """The multipliers of pairs, on a ramp."""
    scaling = embedding.scaling.yarn

    def pair_of(turns: float) -> float:
        """The pair that turns so often within the original positions."""
        ratio = scaling.original_positions / (turns * (2 * math.pi))
        return pairs * math.log(ratio) / math.log(embedding.theta)

    low = pair_of(scaling.beta_fast if scaling.HasField("beta_fast") else 32.0)
    high = pair_of(scaling.beta_slow if scaling.HasField("beta_slow") else 1.0)
    if scaling.truncate or not scaling.HasField("truncate"):
        low, high = float(math.floor(low)), float(math.ceil(high))
    low, high = max(low, 0.0), min(high, 2.0 * pairs - 1)
    high += 0.001 if low == high else 0.0
    ramps = [min(max((pair - low) / (high - low), 0.0), 1.0) for pair in range(pairs)]
    return [ramp / scaling.factor + (1 - ramp) for ramp in ramps]
