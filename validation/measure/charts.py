# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Charts as inline SVG, without a library: points with error bars and names, and lines.

A chart is 440 units wide and scales with the page, so that its text of 13 units can be read on
a phone. Colours are the variables --c0 to --c7 of the page, which has them for light and dark.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 440, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 14, 50
COLOURS = 8
_LETTER = 7.0  # mean width of a letter at 13 units
_LINE = 15.0  # height of a line of text


@dataclass(frozen=True)
class Series:
    """Points of one codec.

    Attributes:
        name: Written next to a single point, and the tooltip of a line.
        colour: Number of its colour, taken modulo COLOURS.
        points: Pairs (x, y). What is not finite is left out; so is y <= 0 on a logarithmic axis.
        errors: Standard errors of y, or nothing; nan where it is not known.
        dashed: Whether the line is dashed.
    """

    name: str
    colour: int
    points: Sequence[tuple[float, float]]
    errors: Sequence[float] = ()
    dashed: bool = False


@dataclass(frozen=True)
class _Axis:
    """Values of [low, high] onto [begin, end] of the drawing."""

    low: float
    high: float
    begin: float
    end: float
    logarithmic: bool

    def at(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = (math.log10(max(v, 1e-300)) for v in (value, low, high))
        return self.begin + (value - low) / (high - low) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        if self.logarithmic:
            return _logarithmic_ticks(self.low, self.high)
        step = 10 ** math.floor(math.log10((self.high - self.low) / 4))
        step *= next(m for m in (1, 2, 5, 10) if (self.high - self.low) / (m * step) <= 6)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(i * step, 12) for i in range(first, last + 1)]


def _logarithmic_ticks(low: float, high: float) -> list[float]:
    """Decades, with 2 and 5 where there are few, and more of them in less than a decade."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for digits in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        found = [
            round(m * 10.0**e, 12) for e in decades for m in digits if low <= m * 10.0**e <= high
        ]
        if len(found) >= 4:
            break
    return found


def _axis(values: Iterable[float], begin: float, end: float, logarithmic: bool) -> _Axis:
    """An axis that holds all values, with a margin."""
    found = [value for value in values if math.isfinite(value) and not (logarithmic and value <= 0)]
    low, high = (min(found), max(found)) if found else (1.0, 2.0)
    if logarithmic:
        return _Axis(low / 1.25, high * 1.25, begin, end, True)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return _Axis(0.0 if 0 <= low <= room else low - room, high + room, begin, end, False)


def points_chart(
    series: Sequence[Series], x_label: str, y_label: str, *, logarithmic: bool = True
) -> str:
    """Draws the first point of each series with its error bar and its name.

    Args:
        series: What to draw.
        x_label: What the horizontal axis shows.
        y_label: What the vertical axis shows.
        logarithmic: Whether the vertical axis is; the horizontal one always is.
    """
    drawn = [
        each
        for each in series
        if all(map(math.isfinite, each.points[0])) and (each.points[0][1] > 0 or not logarithmic)
    ]
    x = _axis((each.points[0][0] for each in drawn), _LEFT, WIDTH - _RIGHT, True)
    y = _axis((each.points[0][1] for each in drawn), HEIGHT - _BOTTOM, _TOP, logarithmic)
    places = [(x.at(each.points[0][0]), y.at(each.points[0][1])) for each in drawn]
    marks = []
    for each, (left, top) in zip(drawn, places, strict=True):
        value, error = each.points[0][1], (*each.errors, math.nan)[0]
        colour = f"var(--c{each.colour % COLOURS})"
        if error > 0:
            ends = [y.at(max(value - error, y.low)), y.at(min(value + error, y.high))]
            marks.append(f'<path d="M{left:.1f} {ends[0]:.1f}V{ends[1]:.1f}" stroke="{colour}"/>')
        title = f"<title>{escape(each.name)}: {each.points[0][0]:.3g}, {value:.3g}</title>"
        marks.append(
            f'<circle cx="{left:.1f}" cy="{top:.1f}" r="5" fill="{colour}">{title}</circle>'
        )
    names = _names([each.name for each in drawn], places)
    return _frame(x, y, x_label, y_label, [*marks, *names])


def _names(names: Sequence[str], places: Sequence[tuple[float, float]]) -> list[str]:
    """Writes each name next to its point, where it covers neither another nor a point."""
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in places]
    written = []
    for name, (x, y) in zip(names, places, strict=True):
        width = len(name) * _LETTER
        boxes = [
            (left, y + shift - _LINE / 2, left + width, y + shift + _LINE / 2)
            for shift in (0.0, -14.0, 14.0, -28.0, 28.0, -42.0, 42.0)
            for left in (x + 9, x - 9 - width)
        ]
        inside = [
            box for box in boxes if box[0] >= _LEFT and box[2] <= WIDTH and box[1] >= 0
        ] or boxes
        free = [box for box in inside if not any(_overlap(box, other) for other in taken)]
        box = (free or inside)[0]
        taken.append(box)
        written.append(f'<text x="{box[0]:.1f}" y="{box[3] - 3:.1f}">{escape(name)}</text>')
    return written


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def lines_chart(
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    *,
    logarithmic: bool = False,
    bound: float | None = None,
) -> str:
    """Draws each series as a line.

    Args:
        series: What to draw.
        x_label: What the horizontal axis shows.
        y_label: What the vertical axis shows.
        logarithmic: Whether the vertical axis is.
        bound: Where a dotted horizontal line goes.
    """
    values = [y for each in series for _, y in each.points]
    x = _axis((x for each in series for x, _ in each.points), _LEFT, WIDTH - _RIGHT, False)
    y = _axis(values if bound is None else [*values, bound], HEIGHT - _BOTTOM, _TOP, logarithmic)
    marks = []
    if bound is not None:
        marks.append(f'<path class="bound" d="M{_LEFT} {y.at(bound):.1f}H{WIDTH - _RIGHT}"/>')
    for each in series:
        places = [
            f"{x.at(a):.1f} {y.at(b):.1f}"
            for a, b in each.points
            if math.isfinite(b) and (b > 0 or not logarithmic)
        ]
        if places:
            dash = ' stroke-dasharray="5 4"' if each.dashed else ""
            marks.append(
                f'<path class="line" d="M{"L".join(places)}" '
                f'stroke="var(--c{each.colour % COLOURS})"{dash}>'
                f"<title>{escape(each.name)}</title></path>"
            )
    return _frame(x, y, x_label, y_label, marks)


def _frame(x: _Axis, y: _Axis, x_label: str, y_label: str, marks: Sequence[str]) -> str:
    """The axes with their ticks, and what is drawn over them."""
    bottom = HEIGHT - _BOTTOM
    parts = []
    for tick in y.ticks():
        parts.append(f'<path class="grid" d="M{_LEFT} {y.at(tick):.1f}H{WIDTH - _RIGHT}"/>')
        parts.append(
            f'<text class="tick" x="{_LEFT - 6}" y="{y.at(tick) + 4:.1f}" '
            f'text-anchor="end">{tick:.4g}</text>'
        )
    for tick in x.ticks():
        parts.append(
            f'<text class="tick" x="{x.at(tick):.1f}" y="{bottom + 17}" '
            f'text-anchor="middle">{tick:.4g}</text>'
        )
    parts.append(f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{WIDTH - _RIGHT}"/>')
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(
        f'<text x="{middle:.0f}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x_label)}</text>'
    )
    parts.append(
        f'<text transform="translate(13 {(_TOP + bottom) / 2:.0f}) rotate(-90)" '
        f'text-anchor="middle">{escape(y_label)}</text>'
    )
    title = escape(f"{y_label} against {x_label}")
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">'
        f"{''.join(parts)}{''.join(marks)}</svg>"
    )
