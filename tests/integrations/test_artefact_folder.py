# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Pages of an engine, and the folder where runs of them are artefacts found by block."""

import errno
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")

import numpy as np  # noqa: E402

import kvcompress  # noqa: E402
from kvcompress._foreign_files import ForeignFileError  # noqa: E402
from kvcompress.integrations._artefact_folder import ArtefactFolder, Content  # noqa: E402
from kvcompress.integrations._contents import NotThisError  # noqa: E402
from kvcompress.integrations._exchange import Exchange  # noqa: E402
from kvcompress.integrations._pages import PageLayout  # noqa: E402
from kvcompress.store import ArtefactStore  # noqa: E402
from kvcompress.store._pointers import point, pointer_of  # noqa: E402

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


def kinds_of(tensors: Any) -> Any:  # noqa: ANN401
    """Types and shapes of tensors."""
    return {
        name: (str(each.dtype).removeprefix("torch."), tuple(each.shape))
        for name, each in tensors.items()
    }


def folder_of(
    root: Path, layout: PageLayout, name: str = "tiny", **identity: str
) -> ArtefactFolder:
    """A folder of artefacts of up to four blocks."""
    store = ArtefactStore(root)
    return ArtefactFolder(store, name, {**IDENTITY, **identity}, Content(layout.kinds, 4))


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_byte_comes_back(name: str) -> None:
    """Of any chunks, in any order, through a configuration's JSON, and of no other chunk."""
    layout = PageLayout.of({**asdict(LAYOUTS[name]), "layers": list(LAYOUTS[name].layers)})
    rows = rows_of(layout)
    tensors = layout.gather(rows, [3, 1, 5])
    assert kinds_of(tensors) == layout.kinds(3)
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
    folder = folder_of(tmp_path, layout)
    options = {"codec": "lossless", "layout": layout.notation}
    size = folder.save(client, BLOCKS[:4], layout.gather(rows, range(4)), options, 60)  # type: ignore[arg-type]
    assert size > 0

    again = folder_of(tmp_path, layout)
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

    other = folder_of(tmp_path, layout, model="another")
    assert other.runs.path != again.runs.path
    assert not other.holds(BLOCKS[0])
    with pytest.raises(kvcompress.DataLossError):
        other.restore(Exchange(client), found, None, 60)
    again.forget([BLOCKS[0]])
    assert [again.holds(block) for block in BLOCKS[:2]] == [False, True]
    artefact.unlink()
    assert not again.holds(BLOCKS[1])


def test_what_is_damaged_or_another_is_refused(client: kvcompress.Client, tmp_path: Path) -> None:
    layout = LAYOUTS["CPU"]
    folder = folder_of(tmp_path, layout)
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


def pointer(folder: ArtefactFolder, block: str) -> Path:
    """Where a block's pointer is."""
    return Path(pointer_of(folder.runs.path, block))


def test_artefact_without_its_profile_is_asked_for_once(
    client: kvcompress.Client, tmp_path: Path
) -> None:
    """For some minutes it is not there, and is saved anew."""
    layout = LAYOUTS["CPU"]
    folder = folder_of(tmp_path, layout)
    tensors = layout.gather(np.zeros_like(rows_of(layout)), [0])
    folder.save(client, BLOCKS[:1], tensors, {"codec": "lossless"}, 60)
    artefact = folder.artefact_of(BLOCKS[0])
    assert artefact is not None

    class Lacking:
        """A service that has no profile."""

        def restore(self, *_: object, **__: object) -> None:
            raise kvcompress.FailedPreconditionError("no profile", reason="PROFILE_MISSING")

    lacking: Any = Lacking()
    with pytest.raises(kvcompress.FailedPreconditionError):
        folder.restore(lacking, folder.read(artefact), None, 60)
    assert not folder.holds(BLOCKS[0])
    folder.save(client, BLOCKS[:1], tensors, {"codec": "lossless"}, 60)
    assert folder.holds(BLOCKS[0])


def place(folder: ArtefactFolder, block: str, data: bytes) -> Path:
    """Makes a pointer lead to an artefact of these bytes, as whoever stores artefacts can."""
    name = f"{'0' * 40}-{BLOCKS.index(block):08x}.kvc.safetensors"
    point(f"{folder.runs.path}/unfinished", folder.runs.path, block, name)
    artefact = folder.artefact_of(block)
    assert artefact is not None
    artefact.parent.mkdir(parents=True, exist_ok=True)
    artefact.unlink(missing_ok=True)
    artefact.write_bytes(data)
    return artefact


def test_pointers_lead_out_of_the_folder(tmp_path: Path) -> None:
    """Links to other files, FIFOs, devices and themselves, and text that is no name."""
    folder = folder_of(tmp_path, LAYOUTS["CPU"])
    place = pointer(folder, BLOCKS[0])
    place.parent.mkdir(parents=True)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 40)
    for target in (tmp_path / "fifo", "/dev/zero", "/etc/passwd", place, tmp_path / "sparse"):
        place.symlink_to(target)
        assert not folder.holds(BLOCKS[0])
        assert folder.artefact_of(BLOCKS[0]) is None
        place.unlink()
    for text in ("", "../../../etc/passwd", "/etc/passwd", "\0", "a" * 1000):
        place.write_text(text)
        assert folder.artefact_of(BLOCKS[0]) is None
    os.truncate(place, 1 << 40)
    assert folder.artefact_of(BLOCKS[0]) is None
    place.unlink()
    os.mkfifo(place)
    assert not folder.holds(BLOCKS[0])
    folder.forget(BLOCKS[:1])
    assert not place.exists()


def test_artefacts_that_are_no_files_or_endless(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, LAYOUTS["CPU"])
    artefact = place(folder, BLOCKS[0], b"")
    os.truncate(artefact, 1 << 40)
    with pytest.raises(ForeignFileError, match="1099511627776 bytes, and may have"):
        folder.read(artefact)
    deep = b"[" * 200_000
    artefact.write_bytes(len(deep).to_bytes(8, "little") + deep)
    with pytest.raises(NotThisError, match="nested too deeply"):
        folder.read(artefact)
    for make in (os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")):
        if artefact.exists():
            artefact.unlink()
        make(artefact)
        with pytest.raises(ForeignFileError):
            folder.read(artefact)
        artefact.rmdir() if artefact.is_dir() else artefact.unlink()


def test_what_may_not_be_looked_at_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path, LAYOUTS["CPU"])
    place(folder, BLOCKS[0], b"")
    assert folder.holds(BLOCKS[0])

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", refuse)
        assert not folder.holds(BLOCKS[0])


def test_larger_tensors_are_refused_before_they_are_restored(
    client: kvcompress.Client, tmp_path: Path
) -> None:
    """With the block and the labels that are expected, which are no secret."""
    layout = LAYOUTS["CPU"]
    folder = folder_of(tmp_path, layout)
    kinds = layout.kinds(1)
    zeros = {name: torch.zeros(shape, dtype=torch.bfloat16) for name, (_, shape) in kinds.items()}
    name = next(iter(zeros))
    metadata = {"blocks": BLOCKS[0]}
    forged = {
        "longer": {**zeros, name: torch.zeros(1, 3, 1 << 16, WIDTH, dtype=torch.bfloat16)},
        "wider type": {**zeros, name: zeros[name].float()},
        "one more": {**zeros, "layer_9_key": zeros[name]},
        "one less": {name: zeros[name]},
    }
    options: Any = {"codec": "lossless+zstd", "labels": folder._labels(BLOCKS[:1])}
    for what, tensors in forged.items():
        data = client.compress(tensors, metadata=metadata, **options).artefact
        assert data is not None
        with pytest.raises(NotThisError, match="expected"):
            folder.read(place(folder, BLOCKS[0], data))
        assert len(data) < 1 << 16, what
    many = {"blocks": ",".join(f"{number:064x}" for number in range(33))}
    data = client.compress(zeros, metadata=many, **options).artefact
    assert data is not None
    with pytest.raises(NotThisError, match="has 33 blocks, and may have 32"):
        folder.read(place(folder, BLOCKS[0], data))
    data = client.compress(zeros, metadata=metadata, **options).artefact
    assert data is not None
    found = folder.read(place(folder, BLOCKS[0], data))
    assert kinds_of(folder.restore(Exchange(client), found, None, 60)) == kinds


def test_file_system_without_links(
    client: kvcompress.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As vfat, SMB and some of FUSE are: blocks are found there all the same."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "symlink", refuse)
    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.delattr(os, "O_TMPFILE")
    layout = LAYOUTS["CPU"]
    folder = folder_of(tmp_path, layout)
    tensors = layout.gather(np.zeros_like(rows_of(layout)), range(2))
    folder.save(client, BLOCKS[:2], tensors, {"codec": "lossless"}, 60)
    assert [folder.holds(block) for block in BLOCKS[:3]] == [True, True, False]


def test_artefact_that_no_pointer_can_lead_to_goes(
    client: kvcompress.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each attempt would take space on the disk that nobody finds again."""
    layout = LAYOUTS["CPU"]
    folder = folder_of(tmp_path, layout)
    tensors = layout.gather(np.zeros_like(rows_of(layout)), range(2))
    rename = os.replace

    def full(path: str, target: str) -> None:
        if Path(target) == pointer(folder, BLOCKS[1]):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rename(path, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        folder.save(client, BLOCKS[:2], tensors, {"codec": "lossless"}, 60)
    assert not [
        each for each in (Path(folder.runs.path) / "artefacts").rglob("*") if each.is_file()
    ]
    assert not [*pointer(folder, BLOCKS[1]).parent.glob("*")]
    writers = tmp_path / ".store" / "writers"
    assert [each.name for each in writers.glob("*/*")] == ["lock"]
    assert not any(folder.holds(block) for block in BLOCKS[:2])


def test_blocks_that_are_saved_again_take_no_more_room(
    client: kvcompress.Client, tmp_path: Path
) -> None:
    """As two engines do at once. What other blocks are in stays."""
    layout = LAYOUTS["CPU"]
    folder = folder_of(tmp_path, layout)
    for blocks in (BLOCKS[:2], BLOCKS[1:3], BLOCKS[1:3], BLOCKS[1:3]):
        tensors = layout.gather(np.zeros_like(rows_of(layout)), range(2))
        folder.save(client, blocks, tensors, {"codec": "lossless"}, 60)
    assert (
        len([each for each in (Path(folder.runs.path) / "artefacts").rglob("*") if each.is_file()])
        == 2
    )
    assert [folder.holds(block) for block in BLOCKS[:4]] == [True] * 3 + [False]


def test_links_of_earlier_versions_are_followed(client: kvcompress.Client, tmp_path: Path) -> None:
    layout = LAYOUTS["CPU"]
    folder = folder_of(tmp_path, layout)
    tensors = layout.gather(np.zeros_like(rows_of(layout)), [0])
    folder.save(client, BLOCKS[:1], tensors, {"codec": "lossless"}, 60)
    artefact, link = folder.artefact_of(BLOCKS[0]), pointer(folder, BLOCKS[0])
    assert artefact is not None
    link.unlink()
    link.symlink_to(os.path.relpath(artefact, link.parent))
    assert folder.holds(BLOCKS[0])
    assert folder.artefact_of(BLOCKS[0]) == artefact
    artefact.unlink()
    assert not folder.holds(BLOCKS[0])
