# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""States of llama.cpp: where keys and values are in them.

Written from `llama_context::state_seq_save_file`, `llama_context::state_save_file` and
`llama_kv_cache::state_write` of llama.cpp as llama-cpp-python 0.3.36 has it. A file has magic,
version and the prompt's tokens; what `llama_state_get_data` returns has the name of the
architecture alone. Then there is a block for each cache that a model has, such as one for its
sliding windows: cells with positions, then the keys of each layer, then the values.

Two things are not written in a state: whether cells have more than a position (M-RoPE), and whether
there are values next to the keys (MLA has none). Exactly one answer has to fit every byte.
"""

import itertools
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_SEQUENCE, _SESSION = 0x67677371, 0x6767736E  # magic numbers: ggsq, ggsn
_VERSIONS = {_SEQUENCE: 3, _SESSION: 10}
_EXTENSION = 12  # bytes of a cell that has more than a position
_MOST_NAME, _MOST_LAYERS, _MOST_STREAMS, _MOST_SEQUENCES = 64, 4096, 256, 256
_MOST_TYPE = 64
FLOATS = {0: ("F32", 4), 1: ("F16", 2), 30: ("BF16", 2)}
"""By ggml's number of a type: what safetensors calls it, and bytes."""


class StateError(ValueError):
    """Bytes that are no state of a version that is known."""


@dataclass(frozen=True)
class Form:
    """What a state does not say of itself.

    Attributes:
        extended: Whether cells have more than a position.
        values: Whether there are values next to the keys.
    """

    extended: bool
    values: bool


@dataclass(frozen=True)
class Section:
    """The keys or the values of a layer.

    Attributes:
        name: `layer_N_key` or `layer_N_value`, numbered in the order of the state.
        kind: ggml's number of the type.
        cells: Tokens.
        row_bytes: Bytes of a token.
        transposed: Whether tokens are innermost, as values are without flash attention.
        begin: Where they begin.
    """

    name: str
    kind: int
    cells: int
    row_bytes: int
    transposed: bool
    begin: int

    @property
    def size(self) -> int:
        """Bytes of it all."""
        return self.cells * self.row_bytes


class _Walk:
    """Reads a state from its beginning to its end."""

    def __init__(self, data: memoryview, form: Form, *, with_sections: bool) -> None:
        """Takes a state, or one without what is in its sections."""
        self._data, self._form, self._whole = data, form, with_sections
        self._place, self._layers = 0, 0
        self.sections: list[Section] = []

    def run(self) -> list[Section]:
        """Returns the sections.

        Raises:
            StateError: The bytes are no such state.
        """
        self._header()
        while self._place < len(self._data):
            self._cache()
        return self.sections

    def _take(self, form: str) -> int:
        """Reads a number."""
        end = self._place + struct.calcsize(form)
        if end > len(self._data):
            raise StateError(f"the state ends within a number at byte {self._place}")
        [number] = struct.unpack_from(f"<{form}", self._data, self._place)
        self._place = end
        return int(number)

    def _at_most(self, what: str, least: int, most: int) -> int:
        """Reads a number of 32 bits with bounds."""
        place, number = self._place, self._take("I")
        if not least <= number <= most:
            raise StateError(f"{what} at byte {place} is {number}, not {least} to {most}")
        return number

    def _skip(self, size: int) -> None:
        """Goes on."""
        if self._place + size > len(self._data):
            raise StateError(f"{size} bytes at {self._place} are more than the state has")
        self._place += size

    def _header(self) -> None:
        """Reads what is before the caches."""
        magic = self._take("I")
        if magic in _VERSIONS:
            version = self._take("I")
            if version != _VERSIONS[magic]:
                raise StateError(
                    f"the file has version {version} of its format, and not {_VERSIONS[magic]}, "
                    "which llama-cpp-python 0.3.36 writes"
                )
            self._skip(4 * self._take("I"))
        else:
            self._place = 0
        if magic != _SEQUENCE:
            length = self._at_most("the length of the architecture's name", 1, _MOST_NAME)
            name = bytes(self._data[self._place : self._place + length])
            self._skip(length)
            if not name.isascii() or not name.decode("ascii").isprintable():
                raise StateError("the state does not begin with the name of an architecture")

    def _cache(self) -> None:
        """Reads a cache, of which one stream may have cells."""
        filled = 0
        for _ in range(self._at_most("the number of streams", 1, _MOST_STREAMS)):
            cells = self._at_most("the number of cells", 0, 1 << 30)
            if not cells:
                continue
            filled += 1
            if filled > 1:
                raise StateError("a state with several streams that have cells: save one sequence")
            for _ in range(cells):
                self._cell()
            self._states(cells)

    def _cell(self) -> None:
        """Reads a token's position, and the sequences that it is of."""
        self._at_most("a position", 0, (1 << 31) - 1)
        sequences = self._at_most("the number of a cell's sequences", 1, _MOST_SEQUENCES)
        self._skip((_EXTENSION if self._form.extended else 0) + 4 * sequences)

    def _states(self, cells: int) -> None:
        """Reads the keys and values of all layers."""
        transposed = bool(self._at_most("whether values are transposed", 0, 1))
        first, layers = self._layers, self._at_most("the number of layers", 1, _MOST_LAYERS)
        for layer in range(first, first + layers):
            kind = self._at_most("a type", 0, _MOST_TYPE)
            self._section(f"layer_{layer}_key", kind, cells, self._take("Q"))
        for layer in range(first, first + layers if self._form.values else 0):
            kind = self._at_most("a type", 0, _MOST_TYPE)
            row = self._take("I") * self._take("I") if transposed else self._take("Q")
            self._section(f"layer_{layer}_value", kind, cells, row, transposed=transposed)
        self._layers += layers

    def _section(
        self, name: str, kind: int, cells: int, row: int, *, transposed: bool = False
    ) -> None:
        """Notes a section, and goes behind it."""
        if row == 0 or row % FLOATS.get(kind, ("", 1))[1]:
            raise StateError(f"{name} has {row} bytes for each token, of type {kind}")
        section = Section(name, kind, cells, row, transposed, self._place)
        if self._whole:
            self._skip(section.size)
        self.sections.append(section)


def read(state: bytes) -> tuple[Form, list[Section]]:
    """Finds the sections of a state.

    Raises:
        StateError: The bytes are no state of a version that is known, or say too little.
    """
    found, errors = [], []
    for extended, values in itertools.product((False, True), (True, False)):
        form = Form(extended, values)
        try:
            found.append((form, _Walk(memoryview(state), form, with_sections=True).run()))
        except StateError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    if not any(sections for _, sections in found):
        raise StateError("the state has no tokens")
    if len(found) > 1:
        raise StateError(f"the state can be read as {' and as '.join(str(f) for f, _ in found)}")
    return found[0]


def without(state: bytes, sections: list[Section]) -> bytes:
    """Returns a state without what is in its sections."""
    ends = [0, *(section.begin + section.size for section in sections)]
    begins = [*(section.begin for section in sections), len(state)]
    return b"".join(state[a:b] for a, b in zip(ends, begins, strict=True))


def join(rest: bytes, form: Form, content: Callable[[Section], bytes]) -> bytes:
    """Returns the complete state.

    Args:
        rest: What `without` returned.
        form: What `read` found.
        content: Returns the bytes of a section.

    Raises:
        StateError: The rest is none, or a section has another size.
    """
    return b"".join(_pieces(rest, form, content))


def _pieces(rest: bytes, form: Form, content: Callable[[Section], bytes]) -> Iterator[bytes]:
    """Yields the parts of a state."""
    place = 0
    for section in _Walk(memoryview(rest), form, with_sections=False).run():
        yield rest[place : section.begin]
        place = section.begin
        piece = content(section)
        if len(piece) != section.size:
            raise StateError(f"{section.name} has {len(piece)} bytes, and not {section.size}")
        yield piece
    yield rest[place:]
