# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The entropy tables of a compressed block of Zstandard, as far as a check needs them.

RFC 8878, sections 4.1 and 4.2, with what "Zstandard frames" of FORMAT.md adds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_MAX_BITS = 11


class BackwardBits:
    """A bitstream that is read from its last bit to its first."""

    def __init__(self, data: bytes) -> None:
        """Finds the end mark, the highest one of the last byte."""
        if not data or not data[-1]:
            raise ValueError("a bitstream has no end mark")
        self._data = data
        self.left = 8 * len(data) - 9 + data[-1].bit_length()

    def read(self, count: int) -> int:
        """Returns the next bits, at most 57 at once, the first of them highest."""
        self.left -= count
        if self.left < 0:
            raise ValueError("a bitstream is too short")
        begin = self.left >> 3
        word = int.from_bytes(self._data[begin : begin + 8], "little")
        return word >> (self.left & 7) & ((1 << count) - 1)


@dataclass(frozen=True)
class FseTable:
    """Of each state its symbol, the bits that the next one takes, and the base of the next."""

    log: int
    states: list[tuple[int, int, int]]


def fse_table(log: int, probabilities: Sequence[int]) -> FseTable:
    """Spreads symbols over states; a probability of -1 is less than one part."""
    size = 1 << log
    symbols = [0] * size
    high = size - 1
    for symbol, probability in enumerate(probabilities):
        if probability == -1:
            symbols[high] = symbol
            high -= 1
    position = 0
    for symbol, probability in enumerate(probabilities):
        for _ in range(probability):
            symbols[position] = symbol
            position = (position + (size >> 1) + (size >> 3) + 3) % size
            while position > high:
                position = (position + (size >> 1) + (size >> 3) + 3) % size
    following = [abs(probability) for probability in probabilities]
    states = []
    for symbol in symbols:
        number = following[symbol]
        following[symbol] += 1
        bits = log + 1 - number.bit_length()
        states.append((symbol, bits, (number << bits) - size))
    return FseTable(log, states)


def take_fse_table(data: bytes, max_log: int, max_symbols: int) -> tuple[FseTable, bytes]:
    """Reads a table description; returns the table and what follows it."""
    bits = int.from_bytes(data[:256], "little")
    log = (bits & 15) + 5
    if log > max_log:
        raise ValueError("a table is more accurate than its kind may be")
    position, left = 4, 1 << log
    probabilities: list[int] = []
    while left > 0 and len(probabilities) < max_symbols:
        # One of left + 2 values: the lower ones take a bit less.
        width = (left + 1).bit_length()
        half = 1 << (width - 1)
        shorter = 2 * half - 2 - left
        value = bits >> position & (2 * half - 1)
        if value & (half - 1) < shorter:
            value &= half - 1
            position += width - 1
        else:
            value -= shorter if value >= half else 0
            position += width
        probabilities.append(value - 1)
        left -= abs(value - 1)
        more = 3 if value == 1 else 0
        while more == 3 and len(probabilities) < max_symbols:
            more = bits >> position & 3
            position += 2
            probabilities += [0] * more
    size = -(-position // 8)
    if left or len(probabilities) > max_symbols or size > len(data):
        raise ValueError("the probabilities of a table do not add up")
    if bits >> position & ((1 << (8 * size - position)) - 1):
        raise ValueError("the padding of a table is not 0")
    return fse_table(log, probabilities), data[size:]


class HuffmanLengths:
    """The lengths of the codes of literals."""

    def __init__(self, weights: Sequence[int]) -> None:
        """Takes the weights of all symbols but the last, whose weight they imply."""
        if max(weights) > _MAX_BITS:
            raise ValueError("a code is too long")
        total = sum(1 << weight >> 1 for weight in weights)
        self._bits = total.bit_length()
        rest = (1 << self._bits) - total
        if not 0 < self._bits <= _MAX_BITS or rest & (rest - 1):
            raise ValueError("the codes of literals are not complete")
        counts = np.bincount([*weights, rest.bit_length()], minlength=2)
        if counts[1] < 2:
            raise ValueError("no literals have the longest codes")
        lengths = np.concatenate(
            [
                np.full(counts[weight] << (weight - 1), self._bits + 1 - weight)
                for weight in range(1, len(counts))
            ]
        )
        # Of what the next bits begin with: the codes that lie in them as a whole.
        run, codes = lengths.copy(), np.ones_like(lengths)
        for _ in range(_MAX_BITS):
            following = lengths[(np.arange(len(lengths)) << run) % len(lengths)]
            fits = run + following <= self._bits
            run, codes = run + fits * following, codes + fits
        self._lengths: list[int] = lengths.tolist()
        self._runs: list[int] = run.tolist()
        self._codes: list[int] = codes.tolist()

    def check_stream(self, data: bytes, symbols: int) -> None:
        """Checks that the stream is exactly so many codes."""
        left = BackwardBits(data).left
        padded = np.frombuffer(b"\0\0" + data + b"\0\0", np.uint8).astype(np.uint32)
        words = (padded[:-2] | padded[1:-1] << 8 | padded[2:] << 16).tolist()
        mask, below = (1 << self._bits) - 1, 16 - self._bits
        runs, codes, lengths = self._runs, self._codes, self._lengths
        while symbols >= _MAX_BITS and left > 0:
            at = left + below
            window = words[at >> 3] >> (at & 7) & mask
            left -= runs[window]
            symbols -= codes[window]
        while symbols > 0 and left > 0:
            at = left + below
            left -= lengths[words[at >> 3] >> (at & 7) & mask]
            symbols -= 1
        if left or symbols:
            raise ValueError("a stream of literals does not end with its last code")


def take_huffman_lengths(data: bytes) -> tuple[HuffmanLengths, bytes]:
    """Reads a tree description; returns the lengths and what follows it."""
    if not data:
        raise ValueError("a block is cut off")
    header, data = data[0], data[1:]
    size = header if header < 128 else (header - 126) // 2
    if size > len(data):
        raise ValueError("a tree of literals is cut off")
    description, data = data[:size], data[size:]
    if header < 128:
        return HuffmanLengths(_fse_weights(description)), data
    weights = [half for byte in description for half in (byte >> 4, byte & 15)]
    if any(weights[header - 127 :]):
        raise ValueError("the padding of a tree is not 0")
    return HuffmanLengths(weights[: header - 127]), data


def _fse_weights(description: bytes) -> list[int]:
    """Decodes weights: two states take turns, until one finds too few bits for its next."""
    table, stream = take_fse_table(description, 6, _MAX_BITS + 1)
    bits = BackwardBits(stream)
    states = [bits.read(table.log), bits.read(table.log)]
    weights: list[int] = []
    while len(weights) < 254:
        turn = len(weights) % 2
        symbol, width, base = table.states[states[turn]]
        weights.append(symbol)
        if bits.left < width:
            if bits.left:
                break
            return [*weights, table.states[states[1 - turn]][0]]
        states[turn] = base + bits.read(width)
    raise ValueError("the weights of a tree do not end with its bits")
