# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A profile and caches of a model's shape, made up on the device: speed needs no model."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._artefact import write_artefact
from kvcompress.gpu._decoder import Decoder
from kvcompress.gpu._parts import ProfileCoding
from kvcompress.gpu._quantizing import Source
from kvcompress.payload._ecsq_tables import TABLES, Tables
from oracle.source import Tensor, write

_GROUP_LAYERS = 10
_LEAST, _MOST = 0.02, 6.0  # standard deviations of components, in steps


@dataclass(frozen=True)
class Shape:
    """Of a model, and how many components its groups have."""

    layers: int
    heads: int
    channels: int
    components: int

    def size(self, tokens: int) -> int:
        """Bytes of a cache in BF16."""
        return 4 * self.layers * self.heads * self.channels * tokens


LLAMA = Shape(32, 8, 128, 1024)
TINY = Shape(2, 1, 16, 40)


def _classes(sigmas: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The table for each standard deviation that codes it with the fewest bits."""
    frequencies = np.zeros((TABLES, 64))
    for table, slots in enumerate(Tables.get().symbol[:TABLES]):
        frequencies[table] = [(slots == symbol).sum() for symbol in range(-32, 32)]
    # What a table lacks is an escape, of 16 bits more than its own 11.
    bits = np.where(frequencies > 0, -np.log2(np.maximum(frequencies, 1) / 2048), 27.0)
    edges = np.arange(-32, 33) - 0.5
    found = []
    for sigma in sigmas.tolist():
        below = np.array([0.5 * (1 + math.erf(edge / (sigma * math.sqrt(2)))) for edge in edges])
        found.append(int((bits @ np.diff(below)).argmin()))
    return np.array(found, np.uint8)


def profiles(shape: Shape, seed: int = 0) -> tuple[bytes, bytes]:
    """A profile with random bases of nearly orthogonal components, and one whose keys rotate too.

    Args:
        shape: Of the model.
        seed: Of the bases.
    """
    rng = np.random.default_rng(seed)
    classes = _classes(np.geomspace(_MOST, _LEAST, shape.components))
    tensors: list[Tensor] = []
    members: list[list[str]] = []
    for index, first in enumerate(range(0, shape.layers, _GROUP_LAYERS)):
        layers = range(first, min(shape.layers, first + _GROUP_LAYERS))
        width = 2 * len(layers) * shape.heads * shape.channels
        # Components of length 2^15, so that the matrix of the decoder is that of the encoder.
        basis = rng.standard_normal((shape.components, width), np.float32)
        basis *= np.float32(32768 / math.sqrt(width))
        numbers = {
            "means": ("F32", (width,), np.zeros(width, "<f4")),
            "scales": ("F32", (width,), np.full(width, 2.0**-15, "<f4")),
            "decode": ("I16", basis.shape, basis.clip(-32767, 32767).astype("<i2")),
            "classes": ("U8", (1, shape.components), classes),
        }
        for name, (dtype, sizes, values) in numbers.items():
            tensors.append(Tensor(f"group.{index}.{name}", dtype, sizes, values.tobytes()))
        form = f"{shape.heads}x{shape.channels}"
        members.append([f"k{layer}:{form}:R,v{layer}:{form}:-" for layer in layers])
    pairs = shape.channels // 2
    turns = 500000.0 ** (-np.arange(pairs) / pairs) / (2 * math.pi)
    increments = (turns * 2.0**64).astype(np.uint64).tobytes()
    rotation = [Tensor("rotation.0", "U64", (pairs,), increments)]
    groups = ";".join(",".join(group) for group in members)
    return (
        write(tensors, _metadata("", groups.replace("R", "-"))),
        write(rotation + tensors, _metadata("halves", groups.replace("R", "0"))),
    )


def _metadata(rotations: str, groups: str) -> dict[str, str]:
    """What the header of a profile says."""
    prefix = "kvcompress.profile"
    return {
        prefix: "1",
        f"{prefix}.label": "synthetic",
        f"{prefix}.training": "",
        f"{prefix}.presets": "max=1",
        f"{prefix}.rotations": rotations,
        f"{prefix}.groups": groups,
    }


def artefact(
    shape: Shape, tokens: int, block_tokens: int, plain: Decoder, turned: Decoder
) -> bytes:
    """An artefact of a cache whose components are as large as the classes say.

    Args:
        shape: Of the model.
        tokens: Of the cache.
        block_tokens: Of a block.
        plain: With the profile without rotation, under which the elements are made.
        turned: With the one that the artefact names, of the same bases.
    """
    device = plain.device
    generator = torch.Generator(device).manual_seed(1)
    sigmas = torch.from_numpy(np.geomspace(_MOST, _LEAST, shape.components)).float().to(device)
    if plain.profile is None or turned.profile is None:
        raise ValueError("both decoders have a profile")
    coding = ProfileCoding(plain.profile, "max", plain.bases, device, block_tokens, 1 << 30)
    parts = []
    for group in plain.profile.groups:
        basis = torch.from_numpy(group.decode.copy()).to(device).to(torch.float32)
        basis *= float(group.scales[0])
        values = torch.randn(tokens, shape.components, generator=generator, device=device)
        rows = ((values * sigmas) @ basis).to(torch.bfloat16)
        sources, column = [], 0
        for member in group.members:
            width = member.heads * member.channels
            part = rows[:, column : column + width].reshape(tokens, member.heads, -1)
            column += width
            role = "key" if member.role == "k" else "value"
            name, tensor = f"layer_{member.layer}_{role}", part.transpose(0, 1).unsqueeze(0)
            sources.append(Source(coding.entry(name, "BF16", tuple(tensor.shape)), tensor))
        parts += coding.parts(sources, 0, {})
    return bytes(write_artefact(parts, {}, {}, turned.profile, device).data.numpy())
