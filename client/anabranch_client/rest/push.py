"""Rows for ``stream push``, read from a Parquet file or JSON lines as JSON values, in portions."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from anabranch_client.errors import UsageError
from anabranch_contract.queries.text_values import interval_text
from anabranch_contract.queries.types import TypeKind, whole_interval
from anabranch_contract.rest.documents import BOM

#: Rows per request.
ROWS = 5_000
_DAY_TO_SECOND = whole_interval(TypeKind.INTERVAL)


def json_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A pushed row's values as JSON values.

    >>> json_row({"d": Decimal("1.50"), "b": bytes([1, 2]), "n": None, "day": date(2024, 5, 1)})
    {'d': '1.50', 'b': 'AQI=', 'n': None, 'day': '2024-05-01'}
    """
    return {name: _json_value(value) for name, value in row.items()}


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, timedelta):
        return interval_text(value // timedelta(microseconds=1), _DAY_TO_SECOND)
    if isinstance(value, Mapping):
        return json_row(value)
    if isinstance(value, list):
        return [_json_value(one) for one in value]
    return value


def rows_of(file: str, standard_input: TextIO) -> Iterator[list[dict[str, Any]]]:
    """The rows of a Parquet file, or of JSON lines (any other file, or ``-``).

    Raises:
        UsageError: the file can't be read.
    """
    if file == "-":
        yield from _json_lines(standard_input, "standard input")
        return
    path = Path(file)
    try:
        if path.suffix == ".parquet":
            yield from _parquet_rows(path)
        else:
            with path.open(encoding="utf-8") as lines:
                yield from _json_lines(lines, file)
    except (OSError, UnicodeDecodeError) as cause:
        raise _unreadable(file, cause) from cause


def _parquet_rows(path: Path) -> Iterator[list[dict[str, Any]]]:
    # Imported here: only pushes need it, and its import is slow.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as source:
            for batch in source.iter_batches(batch_size=ROWS):
                yield [json_row(row) for row in batch.to_pylist()]
    except pa.ArrowException as cause:
        raise _unreadable(str(path), cause) from cause


def _unreadable(file: str, cause: Exception) -> UsageError:
    return UsageError(
        f"{file} can't be read: {cause}", field="file", remedy="give a Parquet file, or JSON lines"
    )


def _json_lines(lines: TextIO, name: str) -> Iterator[list[dict[str, Any]]]:
    numbered = enumerate(lines, 1)
    while chunk := list(islice(numbered, ROWS)):
        rows = []
        for number, line in chunk:
            text = line.removeprefix(BOM) if number == 1 else line
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except ValueError:
                row = None
            if not isinstance(row, dict):
                raise UsageError(
                    f"line {number} of {name} is not a JSON object",
                    field="file",
                    remedy="one object per line",
                )
            rows.append(row)
        if rows:
            yield rows
