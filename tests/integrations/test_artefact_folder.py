# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Pages of an engine, and the folder where runs of them are artefacts found by block."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")

import numpy as np  # noqa: E402

import kvcompress  # noqa: E402
from kvcompress.integrations._artefact_folder import ArtefactFolder, NotThisError  # noqa: E402
from kvcompress.integrations._exchange import Exchange  # noqa: E402
from kvcompress.integrations._pages import PageLayout  # noqa: E402

BLOCKS = [f"{number:064x}" for number in range(5)]
IDENTITY = {"model": "tiny", "dtype": "bfloat16"}
TOKENS, WIDTH, PAGES = 8, 16, 2


def layout_of(axes: str, heads: int = 3, padding: int = 0, **fields: Any) -> PageLayout:  # noqa: ANN401
    """A group of two layers in chunks of two pages."""
    kernel_blocks = fields.get("kernel_blocks", 1)
    item = getattr(torch, fields.get("dtype", "bfloat16")).itemsize
    values = kernel_blocks * heads * TOKENS * WIDTH * (2 if "2" in axes else 1)
    page = values * item + padding
    return PageLayout(
        **{
            "layers": ("model.layers.4.attn", "model.layers.7.attn"),
            "offsets": (0, PAGES * page),
            "page_bytes": page,
            "pages": PAGES,
            "tokens": TOKENS,
            "heads": heads,
            "width": WIDTH,
            "dtype": "bfloat16",
            "axes": axes,
            "rank_bytes": 2 * PAGES * page,
            **fields,
        }
    )


LAYOUTS = {
    "CPU": layout_of("h2sd", keys_transposed=True),
    "FlashAttention, two ranks, padded": layout_of("hs2d", padding=32, ranks=2),
    "kernel blocks": layout_of("khs2d", kernel_blocks=2, dtype="float16"),
    "tokens outside, FP8": layout_of("sh2d", dtype="float8_e4m3fn"),
    "latents": layout_of("sd", heads=1, rope_width=4),
    "not known": layout_of("", dtype="uint8"),
}


def rows_of(layout: PageLayout, count: int = 6) -> Any:  # noqa: ANN401
    """Chunks of random bytes, with more behind them."""
    size = layout.ranks * layout.rank_bytes + 5
    return np.random.default_rng(1).integers(0, 256, (count, size), dtype=np.uint8)


def content(layout: PageLayout, rows: Any) -> Any:  # noqa: ANN401
    """What is not padding."""
    pages = rows[:, :-5].reshape(len(rows), -1, layout.page_bytes)
    padding = 32 if layout.ranks == 2 else 0
    return pages[..., : layout.page_bytes - padding]


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_byte_comes_back(name: str) -> None:
    """Of any chunks, in any order, through a configuration's JSON, and of no other chunk."""
    layout = PageLayout.of({**asdict(LAYOUTS[name]), "layers": list(LAYOUTS[name].layers)})
    rows = rows_of(layout)
    tensors = layout.gather(rows, [3, 1, 5])
    written = np.zeros_like(rows)
    layout.scatter(tensors, [2, 0], written, [0, 4])
    assert np.array_equal(content(layout, written[[0, 4]]), content(layout, rows[[5, 3]]))
    assert not written[[1, 2, 3, 5]].any()


def test_tensors_are_tokens_by_channels() -> None:
    """Whatever the order in memory: head, token and channel are where their number says."""
    axes = {"h": 3, "2": 2, "s": TOKENS, "d": WIDTH}
    number = np.arange(np.prod(list(axes.values())), dtype=np.uint16).reshape(2, 3, TOKENS, WIDTH)
    for order, layout in (
        ("h2sd", layout_of("h2sd", dtype="float16", pages=1)),
        ("sh2d", layout_of("sh2d", dtype="float16", pages=1)),
    ):
        layout = replace(layout, layers=layout.layers[:1], offsets=(0,))
        page = number.transpose([("2hsd").index(axis) for axis in order])
        row = np.ascontiguousarray(page).view(np.uint8).reshape(1, -1)
        tensors = layout.gather(row, [0])
        assert list(tensors) == ["layer_4_key", "layer_4_value"]
        for index, tensor in enumerate(tensors.values()):
            assert np.array_equal(tensor.view(torch.int16).numpy()[0], number[index].view(np.int16))


def test_layouts_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="not axes of a page"):
        layout_of("hs2x")
    with pytest.raises(ValueError, match="lack s or d"):
        layout_of("h2s")
    with pytest.raises(ValueError, match="in pages of"):
        layout_of("hs2d", page_bytes=64)
    with pytest.raises(ValueError, match="cannot be transposed"):
        layout_of("sh2d", keys_transposed=True)
    with pytest.raises(ValueError, match="not chunks of 100"):
        layout_of("hs2d").check_row(100)
    with pytest.raises(ValueError, match="is not there as"):
        layout_of("hs2d").scatter({}, [0], rows_of(layout_of("hs2d")), [0])


def test_blocks_of_a_run_are_found_alone(client: kvcompress.Client, tmp_path: Path) -> None:
    """By another process as well, and not under another identity."""
    layout = LAYOUTS["CPU"]
    rows = np.zeros_like(rows_of(layout))
    rows[:, ::2] = rows_of(layout)[:, ::2]  # numbers of BF16 below 2^-119: finite
    folder = ArtefactFolder(tmp_path, "org/tiny", IDENTITY)
    options = {"codec": "lossless", "layout": layout.notation}
    size = folder.save(client, BLOCKS[:4], layout.gather(rows, range(4)), options, 60)  # type: ignore[arg-type]
    assert size > 0

    again = ArtefactFolder(tmp_path, "org/tiny", IDENTITY)
    assert [again.holds(block) for block in BLOCKS] == [True] * 4 + [False]
    artefact = again.artefact_of(BLOCKS[2])
    assert artefact is not None
    found = again.read(artefact)
    assert list(found.blocks) == BLOCKS[:4]
    tokens = (2 * layout.chunk_tokens, 3 * layout.chunk_tokens)
    tensors = again.restore(Exchange(client), found, tokens, 60)
    written = np.zeros_like(rows)
    layout.scatter(tensors, [0], written, [5])
    assert np.array_equal(written[5, :-5], rows[2, :-5])

    other = ArtefactFolder(tmp_path, "org/tiny", {**IDENTITY, "model": "another"})
    assert other.path != again.path
    assert not other.holds(BLOCKS[0])
    with pytest.raises(kvcompress.DataLossError):
        other.restore(Exchange(client), found, None, 60)
    again.forget([BLOCKS[0]])
    assert [again.holds(block) for block in BLOCKS[:2]] == [False, True]
    artefact.unlink()
    assert not again.holds(BLOCKS[1])


def test_what_is_damaged_or_another_is_refused(client: kvcompress.Client, tmp_path: Path) -> None:
    layout = LAYOUTS["CPU"]
    folder = ArtefactFolder(tmp_path, "tiny", IDENTITY)
    rows = np.zeros_like(rows_of(layout))
    for block in BLOCKS[:2]:
        folder.save(client, [block], layout.gather(rows, [0]), {"codec": "lossless"}, 60)
    first, second = (folder.artefact_of(block) for block in BLOCKS[:2])
    assert first is not None
    assert second is not None
    whole = first.read_bytes()
    first.write_bytes(whole.replace(BLOCKS[0].encode(), BLOCKS[1].encode()))
    with pytest.raises(kvcompress.DataLossError):
        folder.restore(Exchange(client), folder.read(first), None, 60)
    first.write_bytes(whole[:-1])
    with pytest.raises(kvcompress.DataLossError):
        folder.restore(Exchange(client), folder.read(first), None, 60)
    for data in (b"", b"abc", whole[:20], second.read_bytes()[:8] + b"{}"):
        first.write_bytes(data)
        with pytest.raises(NotThisError):
            folder.read(first)
