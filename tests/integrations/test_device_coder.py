# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Artefacts in the pages of a device, in the layouts of vLLM, by Triton's interpreter.

What the kernels write is held against what the service restores, and both against PageLayout.
"""

import logging
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_decoding import GOLDEN, language_patched_once, torch

from kvcompress import FailedPreconditionError, load_torch
from kvcompress.integrations._artefact_folder import ArtefactFolder, Content, Found
from kvcompress.integrations._device_coder import DeviceCoder
from kvcompress.integrations._device_pages import NOWHERE, DevicePages
from kvcompress.integrations._pages import PageLayout
from kvcompress.integrations._service import Service
from kvcompress.store import ArtefactStore
from oracle.server import Server, running_server

__all__ = ["language_patched_once"]
pytestmark = pytest.mark.slow

LAYERS, HEADS, WIDTH, TOKENS, PAGES = 4, 2, 16, 8, 12  # those of the golden profile
CHUNK = 2  # pages
PROFILE = GOLDEN / "tiny.profile"
BLOCKS = [f"{number:064x}" for number in range(3)]
RUN = [7, 2, 9, 0, 4, 11]  # pages of three chunks
LOGGER = "kvcompress.integrations._device_coder"


def layout_of(axes: str, padding: int = 0, **fields: Any) -> PageLayout:  # noqa: ANN401
    """Keys and values of all layers, in chunks of two pages."""
    kernel_blocks = fields.get("kernel_blocks", 1)
    page = 2 * HEADS * TOKENS * WIDTH * 2 + padding
    return PageLayout(
        layers=tuple(f"model.layers.{number}.attn" for number in range(LAYERS)),
        offsets=tuple(CHUNK * page * number for number in range(LAYERS)),
        page_bytes=page,
        pages=CHUNK,
        tokens=TOKENS // kernel_blocks,
        heads=HEADS,
        width=WIDTH,
        dtype="bfloat16",
        axes=axes,
        rank_bytes=CHUNK * page * LAYERS,
        **fields,
    )


def latents_of(padding: int = 0) -> PageLayout:
    """Latents of all layers, of 48 channels and 16 rotated ones."""
    page = TOKENS * 64 * 2 + padding
    layout = layout_of("hs2d")
    return replace(
        layout,
        offsets=tuple(CHUNK * page * number for number in range(LAYERS)),
        page_bytes=page,
        heads=1,
        width=64,
        axes="sd",
        rank_bytes=CHUNK * page * LAYERS,
        rope_width=16,
    )


LAYOUTS = {
    "heads outside, fused": layout_of("hs2d"),
    "tokens outside, fused": layout_of("sh2d"),
    "heads outside, apart": layout_of("2hsd"),
    "tokens outside, apart, padded": layout_of("2shd", padding=4 * WIDTH * HEADS),
    "kernel blocks": layout_of("khs2d", kernel_blocks=2),
    "CPU": layout_of("h2sd"),
    "CPU, keys transposed": layout_of("h2sd", keys_transposed=True),
    "latents": latents_of(),
    "latents, padded": latents_of(padding=128),
}
SEVERAL = {"CPU, keys transposed"}


class Engine:
    """The cache of an engine: of each layer some pages, with a cache of the codec's kind."""

    def __init__(self, layout: PageLayout) -> None:
        """Fills all pages."""
        self.layout = layout
        self.bytes = torch.zeros(LAYERS, PAGES, layout.page_bytes, dtype=torch.int8)
        self.pages = DevicePages(layout, list(self.bytes))
        real = load_torch((GOLDEN / "cache.safetensors").read_bytes())
        tokens = torch.arange(PAGES * TOKENS)
        values = {name: real[name].bfloat16()[:, :, tokens % real[name].shape[2]] for name in real}
        if not layout.by_tokens:
            keys = [values[f"layer_{number}_key"] for number in range(LAYERS)]
            parts = [torch.cat([key, 2 * key], 1)[0].transpose(0, 1).flatten(1) for key in keys]
            values = dict(zip(layout.kinds(1), parts, strict=True))
        self.pages.write(values, range(PAGES))

    def gathered(self, pages: list[int]) -> dict[str, Any]:
        """What PageLayout finds in the same bytes, as chunks of a tier in host memory."""
        rows = self.bytes[:, pages].unflatten(1, (-1, CHUNK)).transpose(0, 1)
        view = rows.reshape(len(pages) // CHUNK, -1).numpy().view("u1")
        return self.layout.gather(view, range(len(view)))


@pytest.fixture(scope="module")
def profiled(bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that has the golden profile."""
    folder = tmp_path_factory.mktemp("profiles")
    shutil.copy(PROFILE, folder)
    with running_server(bin_dir, "--profile-directory", str(folder)) as server:
        yield server


class Setting:
    """A folder, and coders of an engine."""

    def __init__(self, folder: Path, server: Server, layout: PageLayout) -> None:
        """Makes an engine."""
        self.engine, self.server = Engine(layout), server
        store = ArtefactStore(str(folder))
        identity = {"model": "tiny"}
        self.folder = ArtefactFolder(store, "tiny", identity, Content(layout.kinds, len(BLOCKS)))

    def coder(
        self, codec: str, profile: Path | None = None, *, kernels: bool = True
    ) -> DeviceCoder:
        """Returns a coder; without `kernels` the service does everything."""
        service = Service(self.server.target, threads=1)
        options: Any = {"codec": codec, "report_tensors": False}
        if codec.startswith("klt:"):
            options["profile"] = "tiny"
        coder = DeviceCoder(self.engine.pages, service, options, profile)
        if not kernels:
            coder.decoder = coder.encoder = None
        return coder

    def save(self, coder: DeviceCoder) -> Found:
        """Saves the three chunks; the pages change before anything is written."""
        before = self.engine.bytes.clone()
        publish = coder.take(self.folder, BLOCKS, RUN, None, 0)
        self.engine.bytes.zero_()
        size = publish()
        self.engine.bytes.copy_(before)
        artefact = self.folder.artefact_of(BLOCKS[1])
        assert artefact is not None
        assert artefact.stat().st_size == size
        return self.folder.read(artefact)

    def restored(self, coder: DeviceCoder, found: Found, first: int, pages: list[int]) -> Any:  # noqa: ANN401
        """Returns all bytes of the engine, all -1 before, with chunks from one on in pages."""
        before = self.engine.bytes.clone()
        self.engine.bytes.fill_(-1)
        tokens = first * CHUNK * TOKENS, first * CHUNK * TOKENS + len(pages) * TOKENS
        coder.restore(self.folder, found, tokens, pages, None)
        restored = self.engine.bytes.clone()
        self.engine.bytes.copy_(before)
        return restored


@pytest.mark.parametrize("name", LAYOUTS)
def test_pages_and_slots(name: str) -> None:
    """Every token is where PageLayout has it, by its page and by its slot."""
    engine = Engine(LAYOUTS[name])
    expected, found = engine.gathered(RUN), engine.pages.read(RUN)
    assert list(found) == list(expected)
    views = engine.pages.views
    assert len(views) == (2 if name in SEVERAL else 1)
    by_slot = {name: view for view in views for name in view.tensors}
    for tensor, values in expected.items():
        assert torch.equal(found[tensor], values), tensor
        view = by_slot[tensor]
        slots = view.slots(RUN)
        assert len(set(slots.tolist())) == len(RUN) * TOKENS
        rows = view.tensors[tensor][slots]
        if engine.layout.by_tokens:
            rows = rows.transpose(0, 1).unsqueeze(0)
        assert torch.equal(rows, values), tensor
    for view in views:
        part = view.slots([3, NOWHERE, 5])
        assert part[TOKENS : 2 * TOKENS].tolist() == [NOWHERE] * TOKENS
        assert torch.equal(part[-TOKENS:], view.slots([5]))


def test_what_is_written_to_other_pages() -> None:
    """Nothing but the pages that were listed changes."""
    engine, source = Engine(LAYOUTS["kernel blocks"]), Engine(LAYOUTS["kernel blocks"])
    before = engine.bytes.clone()
    engine.pages.write(source.pages.read([1, 2, 3]), [8, NOWHERE, 10])
    expected = before.clone()
    expected[:, [8, 10]] = source.bytes[:, [1, 3]]
    assert torch.equal(engine.bytes, expected)


def test_pages_without_slots(caplog: pytest.LogCaptureFixture) -> None:
    """Where pages are no multiple of the distance of tokens, the service does all, and says so."""
    layout = layout_of("hs2d", padding=2)
    pages = DevicePages(layout, list(torch.zeros(LAYERS, PAGES, layout.page_bytes).char()))
    assert pages.views == []
    with caplog.at_level(logging.WARNING, LOGGER):
        coder = DeviceCoder(pages, Service(None, threads=1), {"codec": "int8"})
    assert (coder.decoder, coder.encoder) == (None, None)
    assert "restored and saved by the service: no slots" in caplog.text


@pytest.mark.parametrize("name", LAYOUTS)
def test_kernels_restore_what_the_service_does(profiled: Server, tmp_path: Path, name: str) -> None:
    """A part of the chunks, without a page that the engine has already, and nothing else."""
    setting = Setting(tmp_path, profiled, LAYOUTS[name])
    found = setting.save(setting.coder("int8", kernels=False))
    target = [NOWHERE, 1, 3, 8]
    expected = setting.restored(setting.coder("int8", kernels=False), found, 1, target)
    coder = setting.coder("int8")
    coder._service = SimpleNamespace()  # type: ignore[assignment]  # it is not asked
    restored = setting.restored(coder, found, 1, target)
    assert torch.equal(restored, expected)
    untouched = [page for page in range(PAGES) if page not in target]
    assert (restored[:, untouched] == -1).all()
    assert not (restored[:, 1] == -1).all()


@pytest.mark.parametrize(
    ("codec", "name"),
    [
        *((codec, "heads outside, fused") for codec in ("lossless", "ecsq", "int4:32", "klt:high")),
        *((codec, "latents") for codec in ("lossless", "ecsq", "int4:32", "klt")),
    ],
)
def test_codecs(profiled: Server, tmp_path: Path, codec: str, name: str) -> None:
    """Of each the device restores what the service has made; without loss the same bytes."""
    setting = Setting(tmp_path, profiled, LAYOUTS[name])
    found = setting.save(setting.coder(codec, kernels=False))
    expected = setting.restored(setting.coder(codec, kernels=False), found, 0, RUN)
    coder = setting.coder(codec, PROFILE)
    coder._service = SimpleNamespace()  # type: ignore[assignment]  # it is not asked
    assert torch.equal(setting.restored(coder, found, 0, RUN), expected)
    if codec == "lossless":
        assert torch.equal(expected[:, RUN], setting.engine.bytes[:, RUN])


@pytest.mark.parametrize(
    ("codec", "name"),
    [
        *((codec, "tokens outside, fused") for codec in ("int8:64", "ecsq:high", "klt:high")),
        *((codec, "latents") for codec in ("int8:64", "int4:32")),
    ],
)
def test_the_device_encodes(profiled: Server, tmp_path: Path, codec: str, name: str) -> None:
    """Artefacts that the service restores, without a profile the bytes that it writes itself."""
    setting = Setting(tmp_path / "device", profiled, LAYOUTS[name])
    coder = setting.coder(codec, PROFILE)
    assert coder.encoder is not None
    coder._service = SimpleNamespace()  # type: ignore[assignment]  # it is not asked
    found = setting.save(coder)
    assert found.blocks == tuple(BLOCKS)
    by_service = setting.restored(setting.coder(codec, kernels=False), found, 0, RUN)
    assert torch.equal(setting.restored(setting.coder(codec, PROFILE), found, 0, RUN), by_service)
    if codec != "klt:high":
        other = Setting(tmp_path / "service", profiled, LAYOUTS[name])
        theirs = other.save(other.coder(codec, kernels=False))
        assert found.data == theirs.data


def test_what_the_device_does_not_do_the_service_does(
    profiled: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Told once, however often it happens: another codec, and a profile that it does not have."""
    setting = Setting(tmp_path, profiled, LAYOUTS["CPU"])
    with caplog.at_level(logging.WARNING, LOGGER):
        coder = setting.coder("int4-kivi")
        found = setting.save(coder)
        expected = setting.restored(setting.coder("int4-kivi", kernels=False), found, 0, RUN)
        caplog.clear()
        for _ in range(3):
            assert torch.equal(setting.restored(coder, found, 0, RUN), expected)
        [record] = caplog.records
        assert "artefacts are restored by the service" in record.message
        assert "int4-kivi" in record.message

        with_profile = Setting(tmp_path / "profile", profiled, LAYOUTS["CPU"])
        found = with_profile.save(with_profile.coder("klt:high", kernels=False))
        caplog.clear()
        coder = with_profile.coder("klt:high")
        restored = with_profile.restored(coder, found, 0, RUN)
        assert not (restored[:, RUN] == -1).all()
        assert [record.message.split(":")[0] for record in caplog.records] == [
            "artefacts are saved by the service",
            "artefacts are restored by the service",
        ]


def test_latents_that_the_device_does_not_encode(
    profiled: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The service does, which is told once; the device restores what it has made."""
    setting = Setting(tmp_path, profiled, LAYOUTS["latents"])
    coder = setting.coder("ecsq")
    with caplog.at_level(logging.WARNING, LOGGER):
        setting.save(coder)
        found = setting.save(coder)
    [record] = caplog.records
    assert "artefacts are saved by the service" in record.message
    assert "layer_0[part=latent]" in record.message
    expected = setting.restored(setting.coder("ecsq", kernels=False), found, 0, RUN)
    assert torch.equal(setting.restored(coder, found, 0, RUN), expected)


def test_values_that_are_not_finite(profiled: Server, tmp_path: Path) -> None:
    """The service keeps them without loss, and the device restores them."""
    setting = Setting(tmp_path, profiled, LAYOUTS["heads outside, fused"])
    view = setting.engine.pages.views[0]
    view.tensors["layer_1_key"][view.slots([RUN[0]])] = float("nan")
    with pytest.warns(UserWarning, match="NOT_FINITE"):
        found = setting.save(setting.coder("int8"))
    restored = setting.restored(setting.coder("int8"), found, 0, RUN)
    assert torch.equal(restored[:, RUN], setting.engine.bytes[:, RUN])


def test_damage_and_other_labels(profiled: Server, tmp_path: Path) -> None:
    """Neither is taken for what was asked for."""
    setting = Setting(tmp_path, profiled, LAYOUTS["heads outside, fused"])
    found = setting.save(setting.coder("int8"))
    damaged = Found(found.path, found.data[:-9] + b"damaged!!", found.blocks)
    with pytest.raises(ValueError, match="digest"):
        setting.restored(setting.coder("int8"), damaged, 0, RUN)
    other = Found(found.path, found.data, tuple(reversed(found.blocks)))
    with pytest.raises(Exception, match="blocks"):
        setting.restored(setting.coder("int8"), other, 0, RUN)


def test_a_profile_that_nobody_has(server: Server, profiled: Server, tmp_path: Path) -> None:
    """Neither the device nor the service: the artefact is hidden for a while, and stays."""
    setting = Setting(tmp_path, profiled, LAYOUTS["heads outside, fused"])
    found = setting.save(setting.coder("klt:high", kernels=False))
    setting.server = server
    with pytest.raises(FailedPreconditionError) as refused:
        setting.restored(setting.coder("int8"), found, 0, RUN)
    assert refused.value.reason == "PROFILE_MISSING"
    assert not setting.folder.holds(BLOCKS[0])
    assert found.path.exists()
