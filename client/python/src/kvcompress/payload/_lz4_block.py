# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Which blocks of LZ4 the format takes: "LZ4 blocks" of FORMAT.md."""


def check(block: bytes, size: int) -> None:
    """Checks a block whose content has `size` bytes.

    Raises:
        ValueError: It breaks a rule.
    """
    position = done = matches = 0
    try:
        while True:
            token = block[position]
            position, literals = _lengthen(block, position + 1, token >> 4)
            position += literals
            done += literals
            if position >= len(block):
                break
            distance = block[position] | block[position + 1] << 8
            if not 1 <= distance <= done:
                raise ValueError("a match begins before the content")
            if size - done < 12:
                raise ValueError("a match begins in the last 12 bytes")
            position, length = _lengthen(block, position + 2, token & 15)
            done += length + 4
            matches += 1
    except IndexError:
        raise ValueError("a sequence is cut off") from None
    if position != len(block) or done != size:
        raise ValueError("the content has another size")
    if token & 15:
        raise ValueError("the last sequence has the length of a match")
    if matches and literals < 5:
        raise ValueError("fewer than 5 literals follow the last match")


def _lengthen(block: bytes, position: int, length: int) -> tuple[int, int]:
    """Adds the bytes that go on with a length of 15; returns what follows them."""
    if length < 15:
        return position, length
    while block[position] == 255:
        position += 1
        length += 255
    return position + 1, length + block[position]
