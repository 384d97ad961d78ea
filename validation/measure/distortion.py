# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The usual thresholds on single tensors, for the rows that no service measures. Needs torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

MAX_RMSE = 0.10
MAX_ERROR = 0.5
MIN_SNR_DB = 18.0
MIN_COSINE = 0.99


@dataclass(frozen=True)
class Distortion:
    """What a cache lost.

    Attributes:
        rmse: Root of the mean squared error over all tensors pooled.
        snr_db: 10 log10(sum x^2 / sum e^2) over all tensors pooled; inf when exact.
        tensors: Number of tensors.
        passed: Number of tensors within all four thresholds: RMSE, largest error, SNR, cosine.
    """

    rmse: float
    snr_db: float
    tensors: int
    passed: int


def passes(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Returns whether a tensor of float64 holds the four thresholds after it became y."""
    error = y - x
    noise, signal = float(error.square().sum()), float(x.square().sum())
    if noise == 0:
        return True
    cosine = float((x * y).sum()) / math.sqrt(signal * float(y.square().sum()) or math.inf)
    return (
        math.sqrt(noise / x.numel()) < MAX_RMSE
        and float(error.abs().max()) < MAX_ERROR
        and signal > 0
        and 10 * math.log10(signal / noise) > MIN_SNR_DB
        and cosine > MIN_COSINE
    )


def distortion(
    source: Mapping[str, torch.Tensor], decoded: Mapping[str, torch.Tensor]
) -> Distortion:
    """Measures what a cache lost, tensor by tensor."""
    noise = signal = 0.0
    elements = passed = 0
    for name, tensor in source.items():
        x, y = tensor.double(), decoded[name].double()
        noise += float((y - x).square().sum())
        signal += float(x.square().sum())
        elements += x.numel()
        passed += passes(x, y)
    snr = 10 * math.log10(signal / noise) if noise else math.inf
    return Distortion(math.sqrt(noise / elements), snr, len(source), passed)
