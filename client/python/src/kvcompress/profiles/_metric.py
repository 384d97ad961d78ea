# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The metric of a profile: how much an error of each channel of a cache matters to the model.

An error e of a tensor's channels at a token costs e'Fe, where F is the Fisher information: the
mean of gg' over gradients g of the log-probabilities of sampled tokens by these channels.
"""

from collections.abc import Sequence

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.profiles._model import Cache, Rotation

# The Fisher information holds for small errors. At the rates of profiles a lower power of it,
# 0.5 being that of an infinitesimal error, and a floor, part of the mean eigenvalue, do better.
POWER = 0.35
FLOOR = 0.02
# Tokens that attention treats unlike all others.
_SKIPPED = 4


class MetricFinder:
    """Sums over windows. Channels are those of all heads, with keys' rotation undone."""

    def __init__(self, rotations: Sequence[Rotation | None]) -> None:
        """Takes the rotation of each layer's keys."""
        self._rotations = rotations
        self._squares: dict[tuple[int, int], torch.Tensor] = {}
        self._sums: dict[tuple[int, int], torch.Tensor] = {}
        self._moments: dict[tuple[int, int], torch.Tensor] = {}
        self._tokens = 0

    def add_cache(self, cache: Cache) -> None:
        """Adds a cache, for the spread of each tensor."""
        for place, rows in self._places(cache):
            rows = rows[_SKIPPED:].double()
            one, two = rows.sum(0), rows.square().sum(0)
            self._sums[place] = self._sums.get(place, 0) + one
            self._moments[place] = self._moments.get(place, 0) + two
        self._tokens += cache[0][0].shape[2] - _SKIPPED

    def add_gradients(self, gradients: Cache) -> None:
        """Adds gradients by a cache."""
        for place, rows in self._places(gradients):
            rows = rows[1:]
            self._squares[place] = self._squares.get(place, 0) + rows.T @ rows

    def add(self, other: "MetricFinder") -> None:
        """Adds all that another has, of the same model."""
        for own, more in (
            (self._squares, other._squares),
            (self._sums, other._sums),
            (self._moments, other._moments),
        ):
            for place, sums in more.items():
                own[place] = own.get(place, 0) + sums
        self._tokens += other._tokens

    def metric(self, power: float = POWER, floor: float = FLOOR) -> dict[str, torch.Tensor]:
        """Returns the symmetric matrix of each tensor, by the tensor's name.

        Their scale is such that steps are about in spreads of a tensor.
        """
        matrices, gain = {}, 0.0
        for place, squares in self._squares.items():
            values, vectors = torch.linalg.eigh(squares.double())
            values = values.clamp_min(max(floor * float(values.mean()), 1e-30)) ** power
            matrices[place] = (vectors * values) @ vectors.T
            mean = self._sums[place] / self._tokens
            spread = (self._moments[place] / self._tokens - mean.square()).mean().sqrt()
            gain += float(values.log().mean() + spread.clamp_min(1e-6).log())
        scale = torch.tensor(-gain / len(matrices), dtype=torch.float64).exp()
        return {
            f"layer_{layer}_{('key', 'value')[role]}": (matrix * scale).float().contiguous()
            for (layer, role), matrix in sorted(matrices.items())
        }

    def _places(self, cache: Cache) -> list[tuple[tuple[int, int], torch.Tensor]]:
        """Tokens [tokens, channels] of each layer's keys and values."""
        rows = []
        for layer, pair in enumerate(cache):
            rotation = self._rotations[layer]
            for role, tensor in enumerate(pair):
                tensor = tensor.detach().float().cpu()
                if role == 0 and rotation is not None:
                    tensor = rotation.undo(tensor)
                flat = tensor[0].permute(1, 0, 2).reshape(tensor.shape[2], -1)
                rows.append(((layer, role), flat))
        return rows


def rotation_tensors(rotations: Sequence[Rotation | None]) -> dict[str, torch.Tensor]:
    """Returns the rotation of each layer's keys, as -train-metric takes it."""
    return {
        f"layer_{layer}_rotation": rotation.radians.clone()
        for layer, rotation in enumerate(rotations)
        if rotation is not None
    }


def check_halves(cache: Cache, rotations: Sequence[Rotation | None]) -> None:
    """Checks that the model turns channels (p, p + pairs), and not neighbours.

    Keys have a mean before they are rotated, which the rotation takes away: undone the right way it
    comes back.

    Raises:
        ValueError: It turns neighbours.
    """
    kept = {False: 0.0, True: 0.0}
    for (keys, _), rotation in zip(cache, rotations, strict=True):
        if rotation is None:
            continue
        keys = keys.detach().float().cpu()
        pairs = rotation.cosine.shape[-1]
        turned, rest = keys[..., : 2 * pairs], keys[..., 2 * pairs :]
        halves = torch.cat([turned[..., ::2], turned[..., 1::2], rest], -1)
        for neighbours, form in ((False, keys), (True, halves)):
            mean = rotation.undo(form)[..., _SKIPPED:, :].mean(2)
            kept[neighbours] += float(mean.square().sum() / keys.square().mean())
    if kept[True] > kept[False]:
        raise ValueError(
            "the model turns neighbouring channels of its keys, which gradients do not support: "
            "train from caches alone (--samples 0)"
        )
