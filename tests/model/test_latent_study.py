# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The study of latents: how they are made, and the table."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import latent_study


def test_latents_have_the_shape_of_deepseeks() -> None:
    """Of root mean square 1, and the rotated part as it was."""
    rng = np.random.default_rng(1)
    layers = [
        (rng.standard_normal((3, 40, 64)), rng.standard_normal((3, 40, 64))) for _ in range(4)
    ]
    latent, rotated = latent_study.latents(layers)
    assert latent.shape == (40, 512)
    np.testing.assert_allclose(np.sqrt((latent**2).mean(axis=1)), 1)
    np.testing.assert_array_equal(rotated, layers[0][0][0])
    made = {name: values for name, _, values in latent_study.layouts(latent, rotated, 1e4)}
    assert made["[T, 576] as `mla`, RoPE told"].shape == (40, 576)
    assert made["[1, 2, T, 256]"].shape == (1, 2, 40, 256)


def test_a_bit_is_worth_six_decibels() -> None:
    codecs = {
        "ecsq:0.52,0.52": {"bits": 3.0, "snr": 20.0},
        "klt:0.52,0.52": {"bits": 3.0, "snr": 26.02},
        "ecsq:contract": {"bits": 3.0, "snr": 20.0},
        "klt:contract": {"bits": 2.5, "snr": 20.0},
    }
    row = {"tokens": 512, "layout": "x", "codecs": codecs}
    assert latent_study.gain(row, latent_study.STEPS) == 1.5
    setup = {"date": "", "machine": "", "version": "", "command": ""}
    assert "1.200 (1.200 to 1.200) |" in latent_study.page([row], setup)
