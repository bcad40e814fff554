"""Charts as SVG text, without a library: few, small, and equal bytes for equal figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_COLOURS = (
    "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5",
    "#9c6b4e",
)  # fmt: skip
_LABELS = 190
_PLOT = 520
_ROW = 26
_GAP = 10
_LEGEND = 24
_WIDTH = _LABELS + _PLOT + 130
#: Line chart: left edge and height of the plot, and approximate number of grid lines.
_LEFT, _HEIGHT, _GRID = 90, 240, 5
#: Maximum number of marks on the horizontal axis of a line chart.
_MARKS = 16


@dataclass(frozen=True, slots=True)
class Row:
    """A labelled row of a chart, with one figure per series; ``note``: text at its end."""

    label: str
    figures: tuple[float, ...]
    note: str = ""


def stacked(title: str, series: Sequence[str], rows: Sequence[Row]) -> str:
    """Return a chart with a bar per row, stacked from the row's figures in order of the series."""
    most = max((sum(row.figures) for row in rows), default=0.0) or 1.0
    parts, top = _head(title, series)
    for row in rows:
        parts.append(_text(_LABELS - 8, top + 17, row.label, "end"))
        x = float(_LABELS)
        for i, figure in enumerate(row.figures):
            width = figure / most * _PLOT
            parts.append(_bar(x, top, width, _ROW - 4, i, f"{series[i]}: {figure:.2f}"))
            x += width
        parts.append(_text(x + 6, top + 17, row.note))
        top += _ROW + _GAP
    return _document(parts, top)


def grouped(title: str, series: Sequence[str], rows: Sequence[Row]) -> str:
    """Return a chart with one bar per figure; the bars of a row are below each other."""
    most = max((max(row.figures) for row in rows), default=0.0) or 1.0
    height = _ROW // 2
    parts, top = _head(title, series)
    for row in rows:
        middle = top + height * len(row.figures) / 2 + 5
        parts.append(_text(_LABELS - 8, middle, row.label, "end"))
        for i, figure in enumerate(row.figures):
            width = figure / most * _PLOT
            parts.append(_bar(_LABELS, top, width, height - 2, i, f"{series[i]}: {figure:.2f}"))
            parts.append(_text(_LABELS + width + 6, top + 10, f"{figure:.2f}"))
            top += height
        top += _GAP
    return _document(parts, top)


@dataclass(frozen=True, slots=True)
class Line:
    """A series of points in a line chart; ``points`` alone are drawn unless it is ``joined``."""

    name: str
    points: tuple[tuple[float, float], ...]
    joined: bool = True


def lines(
    title: str, across: str, upward: str, series: Sequence[Line], *, logarithmic: bool = False
) -> str:
    """Return a line chart with common axes: from 0, or logarithmic if all figures are positive."""
    parts, top = _head(title, [one.name for one in series])
    xs = [x for one in series for x, _ in one.points] or [0.0]
    ys = [y for one in series for _, y in one.points] or [1.0]
    logarithmic = logarithmic and min(ys) > 0
    ticks = _decades(min(ys), max(ys)) if logarithmic else _steps(max(ys))
    place = math.log10 if logarithmic else float
    low, high = place(ticks[0]), place(ticks[-1])
    first, last = min(xs), max(xs)
    top += 8

    def across_at(x: float) -> float:
        return _LEFT + 10 + (x - first) / ((last - first) or 1.0) * (_WIDTH - _LEFT - 40)

    def up_at(y: float) -> float:
        return top + _HEIGHT - (place(y) - low) / ((high - low) or 1.0) * _HEIGHT

    for tick in ticks:
        y = up_at(tick)
        parts.append(
            f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - 20}" stroke="#ddd" fill="none"/>'
            + _text(_LEFT - 6, y + 4, f"{tick:,.10g}", "end")
        )
    for x in _marks(xs):
        parts.append(_text(across_at(x), top + _HEIGHT + 18, f"{x:g}", "middle"))
    for number, one in enumerate(series):
        colour = _COLOURS[number % len(_COLOURS)]
        at = [(across_at(x), up_at(y), x, y) for x, y in sorted(one.points)]
        if one.joined and at:
            path = "L".join(f"{left:.1f} {up:.1f}" for left, up, _, _ in at)
            parts.append(f'<path d="M{path}" stroke="{colour}" stroke-width="2" fill="none"/>')
        radius = 5 if not one.joined else 3 if len(at) <= _MARKS else 1.5
        parts += [
            f'<circle cx="{left:.1f}" cy="{up:.1f}" r="{radius}" fill="{colour}">'
            f"<title>{escape(one.name)}: {x:g}, {y:,.4g}</title></circle>"
            for left, up, x, y in at
        ]
    parts.append(_text(_WIDTH - 20, top + _HEIGHT + 36, across, "end"))
    parts.append(_text(12, top + _HEIGHT + 36, f"upward: {upward}"))
    return _document(parts, top + _HEIGHT + 46)


def _marks(xs: Sequence[float]) -> list[float]:
    """Return the marks of the horizontal axis: every figure, or round numbers if there are many
    figures.

    >>> _marks([1, 2, 5]), _marks([i / 2 for i in range(21)])
    ([1, 2, 5], [0.0, 2.0, 4.0, 6.0, 8.0, 10.0])
    """
    found = sorted(set(xs))
    if len(found) <= _MARKS:
        return found
    return [x for x in _steps(found[-1]) if found[0] <= x <= found[-1]]


def _steps(most: float) -> list[float]:
    """Return round figures from 0 to at least ``most``, for the vertical axis.

    >>> _steps(430.0)
    [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]
    """
    rough = (most or 1.0) / _GRID
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= rough * (1 - 1e-9))
    return [step * i for i in range(math.ceil(most / step - 1e-9) + 1 or 2)]


def _decades(least: float, most: float) -> list[float]:
    """Return the powers of ten around positive figures, for a logarithmic axis.

    >>> _decades(0.03, 2.0)
    [0.01, 0.1, 1.0, 10.0]
    """
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    return [10.0**i for i in range(low, max(high, low + 1) + 1)]


def _head(title: str, series: Sequence[str]) -> tuple[list[str], float]:
    """Return title and legend as SVG, and the upper edge of the plot."""
    parts = [f'<text x="12" y="24" font-size="15" font-weight="bold">{escape(title)}</text>']
    x, y = 12.0, 40.0
    for i, name in enumerate(series):
        width = 26 + 7.5 * len(name)
        if x + width > _WIDTH:
            x, y = 12.0, y + _LEGEND
        parts.append(_bar(x, y, 12, 12, i, name))
        parts.append(_text(x + 17, y + 10, name))
        x += width
    return parts, y + _LEGEND + _GAP


def _bar(x: float, y: float, width: float, height: float, colour: int, title: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{_COLOURS[colour % len(_COLOURS)]}"><title>{escape(title)}</title></rect>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _document(parts: Sequence[str], height: float) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="#222">\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
    )
