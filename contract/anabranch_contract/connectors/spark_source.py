"""How Spark reads a source: what the planner has made of a registration, for the runtime.

The service has a registration parsed and type-checked (the planner's ``sources.spark_source``) and
keeps the result with the stream, so the runtime needs no parser. Spark is only given text that was
rendered there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch_contract import codec
from anabranch_contract.queries.expressions import Column, Expr

#: The options that are not the format's own.
COLUMN, PAYLOAD, SCHEMA = "column.", "payload", "schema"
#: Formats in which Spark keeps a record that it can't read, and the column that it keeps it in.
WITH_CORRUPT, CORRUPT = ("csv", "json", "xml"), "#corrupt"


@dataclass(frozen=True, slots=True)
class SparkSource:
    """The texts and expressions by which Spark reads a source, beside its format's options.

    Attributes:
        schema: the columns of the source as Spark's DDL; None: the format knows them.
        parsed: text of the parsed JSON object, to be selected as ``#data``; None: no payload.
        inputs: what Spark is to select, and its text; NULL where a cast fails. Those without alias
            are the source's own columns.
        columns: each column of the stream as an expression over the inputs, in order.
        invalid: text of the condition under which a row is none of the stream's, whatever the
            expressions give.
        arrived: text of what arrived, as bytes; NULL in rows whose inputs hold it.
    """

    schema: str | None
    parsed: str | None
    inputs: tuple[tuple[Column, str], ...]
    columns: tuple[Expr, ...]
    invalid: str
    arrived: str


def format_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that are the format's own.

    >>> format_options({"subscribe": "t", "payload": "json", "column.a": "data.b"})
    {'subscribe': 't'}
    """
    ours = (PAYLOAD, SCHEMA)
    return {k: v for k, v in options.items() if k not in ours and not k.startswith(COLUMN)}


def from_json(doc: Mapping[str, Any]) -> SparkSource:
    """Return the source of a document."""
    return codec.from_json(doc, SparkSource)
