# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Coded bytes, section 5 of FORMAT.md: 16 lanes of rANS under a static model."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

_LANES = 16
_TOTAL = 4096
_LOWEST = 65536
_STATES = 4 * _LANES


def decode(streams: Sequence[bytes], count: int) -> Bytes:
    """Decodes streams of equally many symbols side by side.

    Args:
        streams: The coded bytes of each.
        count: Symbols of each.

    Returns:
        The symbols, of shape [streams, count].

    Raises:
        ValueError: A stream breaks a rule.
    """
    symbols, frequencies, offsets, states, words = [], [], [], [], []
    for stream in streams:
        frequency, position = _model(stream)
        if len(stream) - position < _STATES or (len(stream) - position) % 2:
            raise ValueError("the coded bytes end within the states or a word")
        symbol = np.repeat(np.arange(256, dtype=np.uint8), frequency)
        symbols.append(symbol)
        frequencies.append(frequency[symbol])
        offsets.append(np.arange(_TOTAL) - (np.cumsum(frequency) - frequency)[symbol])
        states.append(np.frombuffer(stream, "<u4", _LANES, position).astype(np.int64))
        words.append(np.frombuffer(stream, "<u2", offset=position + _STATES).astype(np.int64))
    length = np.array([len(each) for each in words])
    end = np.cumsum(length)
    at = end - length
    state = np.stack(states)
    if (state < _LOWEST).any():
        raise ValueError("a state is too low")
    # One table for all: a slot's index is that of its stream and its own.
    base = np.arange(len(streams))[:, None] * _TOTAL
    symbol, frequency = np.concatenate(symbols), np.concatenate(frequencies)
    offset = np.concatenate(offsets)
    word = np.append(np.concatenate(words), 0)
    out = np.empty((-(-count // _LANES), len(streams), _LANES), np.uint8)
    for row, lanes in enumerate(out):
        active = min(_LANES, count - row * _LANES)
        x = state[:, :active]
        slot = (x & (_TOTAL - 1)) + base
        lanes[:, :active] = symbol[slot]
        x = frequency[slot] * (x >> 12) + offset[slot]
        due = x < _LOWEST
        taken = np.cumsum(due, axis=1)
        # Beyond the end the last word is read again; `at` shows it at the end.
        index = np.minimum(at[:, None] + taken - due, len(word) - 1)
        state[:, :active] = np.where(due, x << 16 | word[index], x)
        at = at + taken[:, -1]
    if (at != end).any() or (state != _LOWEST).any():
        raise ValueError("the coded bytes do not end where they should")
    return out.transpose(1, 0, 2).reshape(len(streams), -1)[:, :count]


def _model(stream: bytes) -> tuple[npt.NDArray[np.int64], int]:
    """Reads the model; returns the frequencies and the position after it."""
    frequency, value, position, zeros = np.zeros(256, np.int64), 0, 0, False
    while value < 256:
        first, second = (*stream[position : position + 2], -1, -1)[:2]
        if first < 0 or (second < 0 and not 0 < first < 128):
            raise ValueError("the coded bytes end within the model")
        position += 1 if 0 < first < 128 else 2
        if first == 0:
            if zeros or value + second > 255:
                raise ValueError("a run of zeros is too long or in parts")
            value += second
        elif first < 128:
            frequency[value] = first
        else:
            frequency[value] = (first - 128) << 8 | second
            if frequency[value] < 128:
                raise ValueError("a frequency takes two bytes for one")
        zeros = first == 0
        value += 1
    if frequency.sum() != _TOTAL:
        raise ValueError("the frequencies have another sum")
    return frequency, position
