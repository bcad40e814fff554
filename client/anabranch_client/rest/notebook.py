"""HTML of answers, for notebooks: they show the HTML that a value's ``_repr_html_`` returns."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Generic, TypeVar

from anabranch_contract.rest.documents import Document

T = TypeVar("T")

#: Maximum rows of a list, and maximum characters of a value.
ROWS, TEXT = 100, 300


class Listing(list[T], Generic[T]):
    """A list that notebooks show as a table."""

    def _repr_html_(self) -> str:
        rows = [_scalars(item) for item in self[:ROWS]]
        more = len(self) - ROWS
        return grid(rows) + (f"<p>… and {more} more</p>" if more > 0 else "")


def _scalars(item: object) -> dict[str, Any]:
    """The fields of an answer that fit into a cell of a table."""
    if not isinstance(item, Document):
        return {"": item}
    found = {name: getattr(item, name) for name in type(item).model_fields}
    return {
        name: value
        for name, value in found.items()
        if value is None or isinstance(value, (str, int, float))
    }


def grid(rows: Sequence[dict[str, Any]]) -> str:
    """HTML table of rows; columns without any value are left out.

    >>> grid([{"a": 1, "b": None}, {"a": "<"}])
    '<table><tr><th>a</th></tr><tr><td>1</td></tr><tr><td>&lt;</td></tr></table>'
    """
    names = [
        name
        for name in dict.fromkeys(name for row in rows for name in row)
        if any(row.get(name) not in (None, "") for row in rows)
    ]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{_cell(row.get(name))}</td>' for name in names)}</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def fields(values: dict[str, Any]) -> str:
    """HTML table of named values, without empty ones."""
    lines = (
        f"<tr><th>{escape(name)}</th><td>{_cell(value)}</td></tr>"
        for name, value in values.items()
        if value not in (None, "", [], {})
    )
    return f"<table>{''.join(lines)}</table>"


def text(value: str) -> str:
    """HTML of a text with its line breaks."""
    return f"<pre>{escape(value)}</pre>"


def _cell(value: object) -> str:
    if value is None:
        return ""
    shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return escape(shown if len(shown) <= TEXT else shown[:TEXT] + "…")
