# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""States of llama.cpp, written here as its sources write them."""

import struct

import pytest

from kvcompress.integrations._llama_state import Form, Section, StateError, join, read, without

CELLS, LAYERS, WIDTH = 3, 2, 8
SLOT = struct.pack("<III3i", 0x67677371, 3, 3, 5, 6, 7)
SESSION = struct.pack("<III3iI", 0x6767736E, 10, 3, 5, 6, 7, 5) + b"llama"
HEADERS = {"slot": SLOT, "session": SESSION, "memory": struct.pack("<I", 5) + b"llama"}


def cache(
    kind: int = 1, *, transposed: bool = False, extended: bool = False, values: bool = True
) -> bytes:
    """A cache of two layers, one stream of which has cells."""
    parts = [struct.pack("<III", 2, 0, CELLS)]
    for cell in range(CELLS):
        extension = struct.pack("<3i", cell, 1, -1) if extended else b""
        parts.append(struct.pack("<iI", cell, 1) + extension + struct.pack("<i", 0))
    parts.append(struct.pack("<II", transposed, LAYERS))
    size = {0: 4, 1: 2, 8: 1, 30: 2}[kind]
    states = bytes(range(CELLS * WIDTH * size))
    parts += [struct.pack("<iQ", kind, WIDTH * size) + states] * LAYERS
    row = struct.pack("<II", size, WIDTH) if transposed else struct.pack("<Q", WIDTH * size)
    parts += [struct.pack("<i", kind) + row + states[::-1]] * (LAYERS if values else 0)
    return b"".join(parts)


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("kind", [0, 1, 8, 30])
@pytest.mark.parametrize("options", [{}, {"transposed": True}, {"extended": True}])
def test_sections(header: str, kind: int, options: dict[str, bool]) -> None:
    """Of a model with sliding windows too, which has two caches."""
    state = HEADERS[header] + cache(kind, **options) * 2
    form, sections = read(state)
    assert form == Form(extended=options.get("extended", False), values=True)
    names = [f"layer_{layer}_{role}" for layer in range(4) for role in ("key", "value")]
    assert sorted(section.name for section in sections) == names
    assert all(section.kind == kind and section.cells == CELLS for section in sections)
    [key] = [section for section in sections if section.name == "layer_3_key"]
    assert state[key.begin : key.begin + key.size] == bytes(range(key.size))

    kept = {
        section.name: state[section.begin : section.begin + section.size] for section in sections
    }
    rest = without(state, sections)
    assert len(rest) == len(state) - sum(map(len, kept.values()))
    assert join(rest, form, lambda section: kept[section.name]) == state


def test_latents_alone() -> None:
    form, sections = read(SLOT + cache(values=False))
    assert not form.values
    assert [section.name for section in sections] == ["layer_0_key", "layer_1_key"]


def test_every_shorter_state_is_refused() -> None:
    """Or is one whose values were left out, where it ends behind the keys."""
    state = SLOT + cache()
    _, sections = read(state)
    ends_with_keys = max(each.begin + each.size for each in sections if each.name.endswith("key"))
    for length in range(len(state)):
        if length != ends_with_keys:
            with pytest.raises(StateError):
                read(state[:length])


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (struct.pack("<III", 0x67677371, 2, 0) + cache(), "version 2 .* not 3"),
        (struct.pack("<III", 0x6767736E, 11, 0) + cache(), "version 11 .* not 10"),
        (SLOT, "no tokens"),
        (SLOT + struct.pack("<II", 1, 0), "no tokens"),
        (b"\x05\0\0\0\xff\xff\xff\xff\xff" + cache(), "architecture"),
        (b"safetensors", "architecture"),
        (SLOT + struct.pack("<I", 0), "streams"),
        (SLOT + cache()[:4] + cache()[8:] * 2, "several streams"),
    ],
)
def test_what_is_refused(state: bytes, message: str) -> None:
    with pytest.raises(StateError, match=message):
        read(state)


def test_a_section_of_another_size() -> None:
    state = SLOT + cache()
    form, sections = read(state)

    def shorter(section: Section) -> bytes:
        return bytes(section.size - 1)

    with pytest.raises(StateError, match="layer_0_key has 47 bytes, and not 48"):
        join(without(state, sections), form, shorter)
