# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Reports as notebooks show them: a table, and a bar chart of the layers as inline SVG."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape as escape_html
from typing import TYPE_CHECKING

from kvcompress._inputs import printable
from kvcompress._summary import size_text, snr_text, verdict_text

if TYPE_CHECKING:
    from kvcompress._reports import CompressionReport, DecompressionReport
    from kvcompress._tensor_report import TensorReport

_WIDTH, _HEIGHT = 640, 190
_LEFT, _TOP, _RIGHT, _BOTTOM = 40, 24, 8, 24
_MOST_GROUPS = 160
_MOST_VIOLATIONS = 5
_COLOURS = {"key": "#4c78a8", "value": "#f58518", None: "#79706e"}
_MISSED = "#e45756"


def compression(report: "CompressionReport") -> str:
    """Returns a table of the totals, and a chart where the report lists tensors."""
    metrics, worst = report.metrics, report.worst_tensor
    sizes = f"{size_text(report.original_size_bytes)} to {size_text(report.compressed_size_bytes)}"
    rows = {
        "codec": report.codec,
        "ratio to 16 bits": f"{report.compression_ratio:.2f}x, {report.bits_per_value:.2f} bits "
        f"per value, {sizes}",
        "error": f"{snr_text(metrics)}, RMSE {metrics.rmse:.3g}, largest {metrics.max_error:.3g}, "
        f"cosine {metrics.cosine_similarity:.6g}",
        "verdict": verdict_text(report),
    }
    if worst is not None:
        rows["worst tensor"] = f"{worst.name}, {snr_text(worst.metrics)}"
    missed = report.verdict.violations
    if missed:
        more = [f"and {len(missed) - _MOST_VIOLATIONS} more"] if missed[_MOST_VIOLATIONS:] else []
        rows["missed"] = "\n".join([*missed[:_MOST_VIOLATIONS], *more])
    return _table(rows) + (chart(report.tensors) if report.tensors else "")


def decompression(report: "DecompressionReport") -> str:
    """Returns a table."""
    labels = ", ".join(f"{name}={value}" for name, value in sorted(report.labels.items()))
    return _table(
        {
            "tensors": f"{report.tensors_selected} of {report.tensor_count}, every checksum right",
            "artefact": f"{size_text(report.compressed_size_bytes)}, format "
            f"{report.format_version}, {report.compression_ratio:.2f}x",
            "output": size_text(report.output_size_bytes),
            "labels": labels or "none",
        }
    )


def chart(tensors: Sequence["TensorReport"]) -> str:
    """Draws the signal-to-noise ratio of each layer: of its keys, its values, what has no role.

    Of several tensors the worst is drawn; one without a layer has a place of its own. A red frame
    says that a tensor does not hold its bounds, and a pale bar of full height that it is exact.
    """
    groups: dict[str, list[TensorReport]] = {}
    for tensor in sorted(tensors, key=_layer_or_infinity):
        name = tensor.name if tensor.layer is None else f"layer {tensor.layer}"
        groups.setdefault(name, []).append(tensor)
    shown = dict(list(groups.items())[:_MOST_GROUPS])
    title = "SNR by layer, dB"
    if not all(tensor.verdict.passed for tensor in tensors):
        title += "; red frame: not passed"
    if len(shown) < len(groups):
        title += f"; first {len(shown)} of {len(groups)}"
    known = [each.metrics.snr_db for group in shown.values() for each in group]
    top = max([10.0, *(snr for snr in known if snr is not None)])
    top = -(-top // 10) * 10
    parts = [*_axes(top, shown), *_legend(title, tensors)]
    pitch = (_WIDTH - _LEFT - _RIGHT) / len(shown)
    for index, (name, group) in enumerate(shown.items()):
        parts += _bars(name, group, _LEFT + index * pitch, pitch, top)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img" '
        f'style="max-width:100%;font:11px sans-serif" fill="currentColor">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def escape(text: str) -> str:
    """Returns text for HTML, without characters that would hide or reverse what is around them."""
    return escape_html(printable(text))


def _table(rows: Mapping[str, str]) -> str:
    """Returns a table of two columns; a line of text is one of the cell."""
    lines = (
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">'
        f"{'<br>'.join(map(escape, text.split(chr(10))))}</td></tr>"
        for name, text in rows.items()
    )
    return f"<table>{''.join(lines)}</table>"


def _axes(top: float, groups: Iterable[str]) -> Iterable[str]:
    """Yields the lines of the scale, and names below every so many groups."""
    bottom = _HEIGHT - _BOTTOM
    for step in range(3):
        y = bottom - (bottom - _TOP) * step / 2
        yield (
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="currentColor" opacity=".25"/>'
            f'<text x="{_LEFT - 4}" y="{y + 4:.1f}" text-anchor="end">{top * step / 2:g}</text>'
        )
    names = list(groups)
    every = -(-len(names) // 10)
    pitch = (_WIDTH - _LEFT - _RIGHT) / len(names)
    for index in range(0, len(names), every):
        x = _LEFT + (index + 0.5) * pitch
        name = names[index].removeprefix("layer ")[:12]
        yield f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{escape(name)}</text>'


def _legend(title: str, tensors: Iterable["TensorReport"]) -> Iterable[str]:
    """Yields the title, and the colours of the roles that there are."""
    yield f'<text x="{_LEFT}" y="14">{escape(title)}</text>'
    roles = sorted({tensor.role for tensor in tensors}, key=lambda role: role or "~")
    for index, role in enumerate(roles):
        x = _WIDTH - _RIGHT - 80 * (len(roles) - index)
        colour = _COLOURS.get(role, _COLOURS[None])
        yield f'<rect x="{x}" y="5" width="10" height="10" fill="{colour}"/>'
        yield f'<text x="{x + 14}" y="14">{escape(f"{role}s" if role else "others")}</text>'


def _bars(
    name: str, group: Sequence["TensorReport"], x: float, pitch: float, top: float
) -> Iterable[str]:
    """Draws the bars of a layer, one for each role."""
    roles: dict[str | None, list[TensorReport]] = {}
    for tensor in group:
        roles.setdefault(tensor.role, []).append(tensor)
    width = pitch * 0.8 / len(roles)
    for index, (role, tensors) in enumerate(roles.items()):
        worst = min(tensors, key=_snr_or_infinity)
        share = min(1.0, max(0.0, _snr_or_infinity(worst) / top))
        height = share * (_HEIGHT - _BOTTOM - _TOP)
        held = all(tensor.verdict.passed for tensor in tensors)
        frame = "" if held else f' stroke="{_MISSED}" stroke-width="1.5"'
        pale = ' opacity=".35"' if worst.metrics.snr_db is None else ""
        yield (
            f'<rect x="{x + pitch * 0.1 + index * width:.1f}" '
            f'y="{_HEIGHT - _BOTTOM - height:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'fill="{_COLOURS.get(role, _COLOURS[None])}"{frame}{pale}><title>{escape(name)}: '
            f"{escape(worst.name)}, {snr_text(worst.metrics)}, {escape(worst.codec)}"
            f"{'' if held else ', not passed'}</title></rect>"
        )


def _layer_or_infinity(tensor: "TensorReport") -> float:
    """Returns the layer, infinite where there is none: files are sorted by name."""
    return float("inf") if tensor.layer is None else tensor.layer


def _snr_or_infinity(tensor: "TensorReport") -> float:
    """Returns the signal-to-noise ratio, infinite where there is no error."""
    return float("inf") if tensor.metrics.snr_db is None else tensor.metrics.snr_db
