# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the study compares: everything the server lists. Needs torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from safetensors.torch import load

import kvcompress
from measure.injection import Cache


@dataclass(frozen=True)
class Coded:
    """A cache after compression and decompression.

    Attributes:
        cache: The decoded tensors.
        bytes: What the compressed form takes, everything counted.
        elements: Number of values.
    """

    cache: Cache
    bytes: int
    elements: int


class Row(Protocol):
    """One line of the study's table.

    Attributes:
        name: Short unique name.
        family: What the plot groups by: `KV Compress`, or a package.
        version: Package and version that did it.
        fixed: Whether the result depends on the cache and `version` alone, so that it may be
            kept between runs.
    """

    @property
    def name(self) -> str: ...  # noqa: D102  above
    @property
    def family(self) -> str: ...  # noqa: D102
    @property
    def version(self) -> str: ...  # noqa: D102
    @property
    def fixed(self) -> bool: ...  # noqa: D102

    def code(self, path: Path, source: Mapping[str, Any]) -> Coded:
        """Compresses and decompresses a cache, given as a file and as its tensors."""
        ...


@dataclass(frozen=True)
class ServiceRow:
    """A codec of the service, over gRPC."""

    client: kvcompress.Client
    name: str
    version: str
    options: dict[str, Any] = field(default_factory=dict)
    family: str = "KV Compress"
    fixed: bool = False

    def code(self, path: Path, source: Mapping[str, Any]) -> Coded:
        """See Row.code.

        Raises:
            KVCompressError: A call failed.
        """
        result = self.client.compress(path, **self.options)
        assert result.artefact is not None  # noqa: S101  no output path was given
        assert len(result.artefact) == result.report.compressed_size_bytes  # noqa: S101
        restored = self.client.decompress(result.artefact)
        assert restored.safetensors is not None  # noqa: S101
        elements = result.report.metrics.elements
        return Coded(load(restored.safetensors), len(result.artefact), elements)


BEST_PRESETS = {"klt": ("contract", "high")}
"""Presets that make less of a cache at the effort `best`, by codec."""


def service_rows(client: kvcompress.Client) -> Iterator[ServiceRow]:
    """Yields every codec that the server lists, with every preset."""
    info = client.server_info()
    version = f"kvcompress {info.version}"
    for codec in info.codecs:
        for preset in codec.presets or ("",):
            options = {"codec": f"{codec.name}:{preset}" if preset else codec.name}
            name = f"{codec.name} {preset}".strip()
            yield ServiceRow(client, name, version, options)
            if preset in BEST_PRESETS.get(codec.name, ()):
                yield ServiceRow(client, f"{name} best", version, {**options, "effort": "best"})


def last_stage_rows(client: kvcompress.Client) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields every codec with every byte compressor: the codec's row, the latter, the options."""
    stages = client.server_info().byte_compressors
    for row in service_rows(client):
        for stage in stages:
            yield row.name, stage, {**row.options, "codec": f"{row.options['codec']}+{stage}"}
