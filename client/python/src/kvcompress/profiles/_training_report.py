# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The report of a training: what the profile is, what each layer loses, and what it took."""

import resource
from collections.abc import Iterator, Mapping
from pathlib import Path

from kvcompress._inputs import printable
from kvcompress.profiles._placement import Shares
from kvcompress.profiles._report import ProfileInfo, format_report, report_paths
from kvcompress.profiles._training import Trainer

Losses = Mapping[str, Mapping[str, float]]
"""For each preset the signal-to-noise ratio of each tensor, in dB."""

_COLOURS = ("#0b5fa5", "#d1702a", "#3d8f5f", "#8a5fb0")
_DASHES = {"key": "", "value": ' stroke-dasharray="5 3"'}
_WIDTH, _HEIGHT = 720, 360
_LEFT, _TOP, _RIGHT, _BOTTOM = 56, 40, 700, 310  # of the axes


def write(info: ProfileInfo, trainer: Trainer, profile: Path) -> tuple[Path, Path]:
    """Writes the report and its chart next to a profile: NAME.report.md and NAME.report.svg.

    Args:
        info: The profile.
        trainer: What trained it.
        profile: The profile's file.

    Returns:
        Both files.
    """
    page, picture = report_paths(profile)
    page.write_text(_page(info, trainer, picture.name), encoding="utf-8")
    picture.write_text(chart(trainer.losses), encoding="utf-8")
    return page, picture


def _page(info: ProfileInfo, trainer: Trainer, picture: str) -> str:
    losses, seconds = trainer.losses, trainer.times.parts
    parts = ", ".join(f"{name} {time:.0f} s" for name, time in seconds.items())
    # A child's peak begins with that of its parent, from which it was forked.
    own, children = (
        resource.getrusage(who).ru_maxrss / 1024  # KiB
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    lines = [
        format_report(info),
        "## Training",
        "",
        f"{sum(seconds.values()):.0f} s: {parts}. Peak memory: {own:,.0f} MiB with the model, "
        f"at most {children:,.0f} MiB in kv-compress.",
        "",
        "## What each kind of text loses",
        "",
        "KL divergence, as part of int4's. Each file was measured with a basis that was trained "
        "without it. Bounds are 1.65 standard errors higher.",
        "",
        *_by_kind(trainer.shares),
        "",
        "## What each layer loses",
        "",
        f"![Signal-to-noise ratio of each layer]({picture})",
        "",
        "Signal-to-noise ratio in dB, keys and values, over all texts that presets were placed on.",
        "",
        f"| layer | {' | '.join(losses)} |",
        "| --- " * (len(losses) + 1) + "|",
    ]
    for layer in range(_layers(losses)):
        cells = (
            f"{snr[f'layer_{layer}_key']:.1f}, {snr[f'layer_{layer}_value']:.1f}"
            for snr in losses.values()
        )
        lines.append(f"| {layer} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _by_kind(shares: Mapping[str, Shares]) -> Iterator[str]:
    kinds = list(next(iter(shares.values())).by_kind)
    yield f"| preset | {' | '.join(map(printable, kinds))} |"
    yield "| --- " * (len(kinds) + 1) + "|"
    for preset, found in shares.items():
        cells = (f"{found.by_kind[kind]:.0%}, bound {found.bounds[kind]:.0%}" for kind in kinds)
        yield f"| {preset} | {' | '.join(cells)} |"


def _layers(losses: Losses) -> int:
    return max(len(snr) for snr in losses.values()) // 2


def chart(losses: Losses) -> str:
    """Draws the signal-to-noise ratio of keys and values by layer, as SVG."""
    ratios = [ratio for snr in losses.values() for ratio in snr.values()]
    low, high = min(0.0, *ratios), max(1.0, *ratios)
    count = _layers(losses)
    last = max(count - 1, 1)

    def place(layer: int, ratio: float) -> tuple[float, float]:
        x = _LEFT + (_RIGHT - _LEFT) * layer / last
        return x, _BOTTOM - (_BOTTOM - _TOP) * (ratio - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    step = 5 if high - low <= 40 else 10
    for tick in range(0, int(high) + 1, step):
        _, y = place(0, tick)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_RIGHT}" stroke="#dddddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick} dB</text>')
    for layer in range(0, count, max(1, count // 10)):
        x, _ = place(layer, low)
        parts.append(f'<text x="{x:.1f}" y="{_BOTTOM + 20}" text-anchor="middle">{layer}</text>')
    parts.append(f'<text x="{(_LEFT + _RIGHT) / 2}" y="{_BOTTOM + 40}">layer</text>')
    for i, (preset, snr) in enumerate(losses.items()):
        colour = _COLOURS[i % len(_COLOURS)]
        for role, dashes in _DASHES.items():
            curve = (place(layer, snr[f"layer_{layer}_{role}"]) for layer in range(count))
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in curve)
            line = f'<polyline points="{points}" fill="none" stroke="{colour}"{dashes}/>'
            parts.append(line)
        parts += _legend(i, preset, colour)
    return "\n".join([*parts, "</svg>\n"])


def _legend(index: int, preset: str, colour: str) -> Iterator[str]:
    x = _LEFT + 200 * index
    for y, (role, dashes) in zip((14, 28), _DASHES.items(), strict=True):
        yield f'<path d="M{x} {y - 4}h24" stroke="{colour}"{dashes}/>'
        yield f'<text x="{x + 30}" y="{y}">{preset}, {role}s</text>'
