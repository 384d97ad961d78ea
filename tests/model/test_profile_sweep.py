# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What profile_sweep.py is made of: edited profiles, chunks, tables and the picture."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.profiles import read_profile
from measure import plot_profiles
from measure.profile_bench import as_chunks, from_chunks, run
from measure.profile_report import page, points, ratio_at
from measure.profile_variants import at_step, change, coarsen, keep

GOLDEN = Path(__file__).parents[1] / "golden" / "profile"
PROFILE, CACHE = GOLDEN / "tiny.profile", GOLDEN / "cache.safetensors"


def sizes(profile: Path, bin_dir: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Returns the size of the sample with a profile, which the program must take."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir))
    small = folder / "small"
    run("-profile", profile, "-codec", "klt:high", "-input", CACHE, "-output", small)
    return small.stat().st_size


def test_a_profile_that_is_not_changed_is_the_same_file(tmp_path: Path) -> None:
    change(PROFILE, tmp_path / "same.profile", lambda _, array: array)
    assert (tmp_path / "same.profile").read_bytes() == PROFILE.read_bytes()


def test_fewer_components_and_fewer_bits(
    bin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, coarse = tmp_path / "few.profile", tmp_path / "coarse.profile"
    change(PROFILE, few, keep(1))
    assert [group[2] for group in read_profile(few).groups] == [1, 1]
    change(PROFILE, coarse, coarsen(4))
    assert coarse.stat().st_size == PROFILE.stat().st_size
    whole = sizes(PROFILE, bin_dir, tmp_path, monkeypatch)
    assert sizes(few, bin_dir, tmp_path, monkeypatch) < whole
    assert sizes(coarse, bin_dir, tmp_path, monkeypatch) > 0


def test_one_preset_of_several(
    bin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the name ultra, and the step and the classes of the other."""
    fine = tmp_path / "fine.profile"
    at_step(PROFILE, fine, 0)
    [preset] = read_profile(fine).presets
    assert (preset.name, preset.step) == ("ultra", 0.5)
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir))
    run("-profile", fine, "-codec", "klt:ultra", "-input", CACHE, "-output", tmp_path / "small")
    whole = sizes(PROFILE, bin_dir, tmp_path, monkeypatch)
    assert (tmp_path / "small").stat().st_size == pytest.approx(whole, abs=100)


def test_coarse_integers_have_as_many_values() -> None:
    rows = np.random.default_rng(1).normal(0, 3000, (5, 400)).clip(-32767, 32767).astype("<i2")
    coarse = coarsen(6)("group.0.decode", rows)
    assert all(len(np.unique(row)) <= 63 for row in coarse)
    unit = np.abs(rows.astype(int)).max(1, keepdims=True) / 31
    assert (np.abs(coarse.astype(int) - rows) <= unit / 2 + 1).all()
    assert coarsen(6)("group.0.means", rows) is rows
    assert (coarsen(16)("group.0.decode", rows) == rows).all()


def test_chunks_hold_the_cache() -> None:
    cache = {
        f"layer_{layer}_{part}": torch.randn(1, 2, 10, 3)
        for layer in range(2)
        for part in ("key", "value")
    }
    chunks = as_chunks(cache, 4)
    assert [list(chunk.shape) for chunk in chunks] == [[2, 2, t, 6] for t in (4, 4, 2)]
    restored = from_chunks(chunks, 2)
    assert list(restored) == list(cache)
    assert all(torch.equal(restored[name], cache[name]) for name in cache)


def rows() -> list[dict[str, Any]]:
    """What a run of all kinds of parts may have found."""
    score = {"ratio": 20.0, "kl": 0.1, "perplexity": 0.01, "top1": 0.9, "text": "news"}
    found: list[dict[str, Any]] = [
        {"part": "reference", **score},
        {"part": "reference", "done": True},
    ]
    for part in ("lengths", "chunks"):
        for name in ("int4", "profile ultra"):
            found += [
                {**score, "part": part, "name": name, "tokens": tokens} for tokens in (64, 256)
            ]
    found += [
        {**score, "part": "blocks", "name": "profile ultra", "tokens": 64, "kl": 0.05},
        {"part": "blocks", "done": True},
    ]
    for part in ("windows", "text"):
        for step, ratio, kl in ((2.0, 40.0, 0.05), (4.0, 80.0, 0.1)):
            found.append({**score, "part": part, "name": "6", "step": step, "size": 10**6})
            found[-1] |= {"ratio": ratio, "kl": kl}
        found.append({"part": part, "name": "6", "done": True})
    return found


def test_the_ratio_at_a_divergence() -> None:
    found = points(rows(), "windows", "6")
    assert [at.share for at in found] == pytest.approx([0.5, 1.0])
    assert ratio_at(found, 0.5**0.5) == pytest.approx(40 * 2**0.5)
    assert ratio_at(found, 0.4) is None
    assert ratio_at(found[:1], 0.75) is None


def test_the_page_and_the_picture(tmp_path: Path) -> None:
    text = page(["A model."], rows())
    assert "| windows | profile | ratio at 75% of int4's KL |" in text
    assert "| 6 | 1.0 MB | 60.0x | 2.00: 40.0x, 50%; 4.00: 80.0x, 100% | +1.0%, 90.0% |" in text
    assert "| profile ultra | 20.0x, 100%, +1.0%, 90.0% |" in text
    assert "| profile ultra | 20.0x, 50%, +1.0%, 90.0% |" in text
    assert "| 6 | 80.0x, 100% |" in text
    plot_profiles.plot(rows(), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
