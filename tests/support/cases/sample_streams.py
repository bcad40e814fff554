"""Sample streams for tests of SQL."""

from __future__ import annotations

from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type

#: One column of every type, and names that differ only in case or need quoting.
ALL_TYPES = {
    "Key": "int",
    "b": "bigint",
    "sh": "smallint",
    "ti": "tinyint",
    "f": "float",
    "d": "double",
    "p": "decimal(10,2)",
    "w": "decimal(38,10)",
    "name": "string",
    "ok": "boolean",
    "dt": "date",
    "ts": "timestamp",
    "tn": "timestamp_ntz",
    "bin": "binary",
    "a b": "int",
}


def stream(name: str, columns: dict[str, str], event_time: str | None = None) -> Stream:
    """Return a stream with the given columns."""
    typed = tuple((column, parse_type(text)) for column, text in columns.items())
    return Stream(StreamName(name), typed, event_time)


def sample_streams() -> dict[str, Stream]:
    """The streams ``t`` (every type), ``R S T`` (times, shared keys), ``plain`` (no event time)."""
    rst = {
        "k": "int",
        "l": "bigint",
        "x": "int",
        "g": "double",
        "s": "string",
        "p": "decimal(12,2)",
        "w": "decimal(38,18)",
        "day": "date",
        "ts": "timestamp",
    }
    found = [stream(name, rst, "ts") for name in ("R", "S", "T")]
    found.append(stream("t", ALL_TYPES, "ts"))
    found.append(stream("plain", {"k": "int", "ts": "timestamp", "v": "string"}))
    return {str(s.name): s for s in found}
