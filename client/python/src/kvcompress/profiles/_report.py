# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What a profile file says of itself."""

import hashlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from kvcompress._file_type import MAX_HEADER_BYTES
from kvcompress._foreign_files import open_foreign, parse_json
from kvcompress._inputs import printable

_PREFIX = "kvcompress.profile"
_MOST_BYTES = 16 << 30
_CHUNK = 1 << 20
_PREFIX_SIZE = 8


@dataclass(frozen=True)
class Expectation:
    """What training measured of a preset, on text that it did not train on.

    Attributes:
        ratio: Of a cache's bytes to its artefact's.
        divergence: Kullback-Leibler divergence of the model's predictions, in nats a token.
        int4_divergence: The same after `int4`.
        least_share: What `divergence` is of `int4_divergence` on the kind of text that shows it
            least; 0 where kinds were not measured.
        most_share: The same of the kind that shows it most, with the uncertainty of the
            measurement.
    """

    ratio: float
    divergence: float
    int4_divergence: float
    least_share: float = 0.0
    most_share: float = 0.0


@dataclass(frozen=True)
class Preset:
    """A preset of a profile.

    Attributes:
        name: As in `klt:ultra`.
        step: Of the quantizer.
        expected: None where training did not measure it.
    """

    name: str
    step: float
    expected: Expectation | None


@dataclass(frozen=True)
class ProfileInfo:
    """A profile file.

    Attributes:
        digest: `sha256:` and 64 hexadecimal digits.
        label: What the model is called.
        size: Of the file, in bytes.
        training: How it was trained.
        presets: In the order of the file.
        rotations: How many rotary position embeddings it has.
        groups: Tensors, channels and components of each group.
    """

    digest: str
    label: str
    size: int
    training: str
    presets: tuple[Preset, ...]
    rotations: int
    groups: tuple[tuple[int, int, int], ...]


def report_paths(profile: Path) -> tuple[Path, Path]:
    """Returns the paths of the report on the training of a profile and of its chart."""
    return profile.with_suffix(".report.md"), profile.with_suffix(".report.svg")


def read_header(path: Path) -> dict[str, Any]:
    """Reads the header of a safetensors file.

    Raises:
        ValueError: It is not one.
        OSError: It cannot be read.
    """
    with open_profile(path) as file:
        prefix = file.read(8)
        size = struct.unpack("<Q", prefix)[0] if len(prefix) == _PREFIX_SIZE else None
        if size is None or size > MAX_HEADER_BYTES:
            raise ValueError(f"{path} is not a profile: it has no safetensors header")
        try:
            header: Any = parse_json(file.read(size))
        except ValueError as error:
            raise ValueError(f"{path} is not a profile: {error}") from error
    metadata = header.get("__metadata__", {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(x, str) for x in metadata.values()):
        raise ValueError(f"{path} is not a profile: its header is no object with metadata")
    return dict(header)


def open_profile(path: Path) -> BinaryIO:
    """Opens a profile. Links are followed: a volume of Kubernetes has nothing else.

    Raises:
        ForeignFileError: It is no file, or larger than any profile.
        OSError: It cannot be opened.
    """
    return open_foreign(os.path.realpath(path), _MOST_BYTES)


def read_profile(path: str | Path) -> ProfileInfo:
    """Reads what a profile says of itself. Its numbers are not checked.

    Raises:
        ValueError: The file is not a profile, or of a later version.
        OSError: It cannot be read.
    """
    path = Path(path)
    header = read_header(path)
    metadata = header.get("__metadata__", {})
    version = metadata.get(_PREFIX)
    if version not in {"1", "2", "3"}:
        found = "no profile" if version is None else f"a profile of version {version}"
        raise ValueError(f"{path} is {found}; this package reads versions 1 to 3")
    digest = hashlib.sha256()
    with open_profile(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    try:
        return ProfileInfo(
            digest=f"sha256:{digest.hexdigest()}",
            label=metadata[f"{_PREFIX}.label"],
            size=path.stat().st_size,
            training=metadata[f"{_PREFIX}.training"],
            presets=presets_of(metadata),
            rotations=len(list(filter(None, metadata[f"{_PREFIX}.rotations"].split(",")))),
            groups=tuple(
                (text.count(",") + 1, *reversed(header[f"group.{i}.decode"]["shape"]))
                for i, text in enumerate(metadata[f"{_PREFIX}.groups"].split(";"))
            ),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(f"{path} is a damaged profile: {error}") from error


def presets_of(metadata: dict[str, str]) -> tuple[Preset, ...]:
    """Returns the presets that the metadata of a profile has, in their order."""
    texts = metadata[f"{_PREFIX}.presets"].split(",")
    measured = metadata.get(f"{_PREFIX}.expectations")
    numbers = measured.split(",") if measured else [""] * len(texts)
    presets = []
    for text, number in zip(texts, numbers, strict=True):
        name, _, step = text.partition("=")
        expected = Expectation(*map(float, number.split("/"))) if number else None
        presets.append(Preset(name, float(step), expected))
    return tuple(presets)


def format_report(info: ProfileInfo) -> str:
    """A page about a profile, in Markdown."""
    lines = [
        f"# Profile of {info.label}",
        "",
        f"- Digest: {info.digest}",
        f"- Size: {info.size:,} bytes",
        f"- Training: {' '.join(info.training.split())}",
        f"- Rotations: {info.rotations}",
        "",
        "| group | tensors | channels | components |",
        "| --- | --- | --- | --- |",
    ]
    for i, (tensors, channels, components) in enumerate(info.groups):
        lines.append(f"| {i} | {tensors} | {channels} | {components} |")
    lines += ["", "| preset | step | ratio | divergence | part of int4's | by kind of text |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for preset in info.presets:
        row = f"| {preset.name} | {preset.step:.4g} "
        if preset.expected is None:
            lines.append(row + "| not measured | | | |")
            continue
        expected = preset.expected
        part = expected.divergence / expected.int4_divergence
        kinds = (
            f"{expected.least_share:.0%} to {expected.most_share:.0%}"
            if expected.most_share > 0
            else "not measured"
        )
        lines.append(
            f"{row}| {expected.ratio:.1f} | {expected.divergence:.5f} | {part:.0%} | {kinds} |"
        )
    return "\n".join(map(printable, lines)) + "\n"
