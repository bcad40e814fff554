"""Instructions for reading a source with Spark, compiled by the planner from a registration.

The planner (``sources.spark_source``) parses and type-checks a registration, and the service keeps
the result in the stream's record, so the runtime needs no parser. Spark gets only text that the
planner has generated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch_contract import codec
from anabranch_contract.queries.expressions import Column, Expr

#: Options that anabranch interprets itself: the prefix ``column.``, and two names.
COLUMN, PAYLOAD, SCHEMA = "column.", "payload", "schema"
#: Formats for which Spark keeps records that it can't parse, and the column with their text.
WITH_CORRUPT, CORRUPT = ("csv", "json", "xml"), "#corrupt"


@dataclass(frozen=True, slots=True)
class SparkSource:
    """SQL texts and expressions for reading a source with Spark, in addition to its options.

    Attributes:
        schema: columns of the source in Spark's DDL; None: the format provides its own.
        parsed: SQL text of the parsed JSON payload, selected as ``#data``; None: no payload.
        inputs: the columns that Spark selects, each with its SQL text: NULL if a cast fails. A
            column without alias is one of the source's own.
        columns: each column of the stream as an expression over the inputs, in order.
        invalid: SQL text of a condition that marks a row as invalid (unreadable, or a failed cast).
        arrived: SQL text of the record as received, in bytes; NULL if the inputs contain it.
    """

    schema: str | None
    parsed: str | None
    inputs: tuple[tuple[Column, str], ...]
    columns: tuple[Expr, ...]
    invalid: str
    arrived: str


def format_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Spark's format itself, without anabranch's own options.

    >>> format_options({"subscribe": "t", "payload": "json", "column.a": "data.b"})
    {'subscribe': 't'}
    """
    ours = (PAYLOAD, SCHEMA)
    return {k: v for k, v in options.items() if k not in ours and not k.startswith(COLUMN)}


def from_json(doc: Mapping[str, Any]) -> SparkSource:
    """Decode the instructions for a Spark source from their JSON document."""
    return codec.from_json(doc, SparkSource)
