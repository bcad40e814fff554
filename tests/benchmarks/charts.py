"""Bar charts as SVG text, made by hand: few, small, and the same bytes for the same figures."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

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


@dataclass(frozen=True, slots=True)
class Row:
    """A labelled row of a chart: one figure per series; ``note`` stands at its end."""

    label: str
    figures: tuple[float, ...]
    note: str = ""


def stacked(title: str, series: Sequence[str], rows: Sequence[Row]) -> str:
    """One bar per row, made of its figures in order of the series."""
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
    """One bar per figure, those of a row under each other."""
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


def _head(title: str, series: Sequence[str]) -> tuple[list[str], float]:
    """Title and legend, and where the plot begins."""
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
