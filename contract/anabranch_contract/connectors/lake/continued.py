"""Continued sources: past rows from files or lake tables, then later rows from Kafka topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from anabranch_contract.connectors.file_sources import is_own
from anabranch_contract.connectors.kafka_sources import is_own_topic
from anabranch_contract.connectors.lake.options import LAKE
from anabranch_contract.errors import PlannerError, StreamError


def check_continued(format: str, path: str | None, options: Mapping[str, str]) -> None:
    """Check that a source has an end, so that another source may continue it.

    Raises:
        StreamError: sources of its format never end, or it does not begin with its earliest rows.
    """
    if format not in LAKE and not is_own(format, path, options):
        raise StreamError(
            "endless-source",
            f"a source of format {format} has no end at which another could go on",
            field="source.format",
            remedy="give files, delta or iceberg, or leave out source.then",
        )
    if format in LAKE and options.get("start", "earliest") != "earliest":
        raise StreamError(
            "bad-option",
            "a source that is continued has a snapshot only",
            field="source.options.start",
            remedy="leave start out",
        )


def check_continuation(format: str, options: Mapping[str, str], *, more: bool) -> None:
    """Check that a source can continue another one, and that its options state from where.

    Args:
        more: whether a third source is to follow this one.

    Raises:
        StreamError: a third source follows, or the source reads no Kafka topics or has no option
            ``start``.
    """
    if not is_own_topic(format, options) or more:
        raise StreamError(
            "unsupported-continuation",
            "only one source continues another, and its rows come from Kafka topics",
            field="source.then",
            remedy="give format kafka with brokers and topics, and nothing after it",
        )
    if "start" not in options:
        raise StreamError(
            "bad-option",
            "the topics need the point at which the rows before them end",
            field="source.then.options.start",
            remedy="give a time, the offset of each partition, earliest, or latest: the end of the "
            "topics when reading of the files begins",
        )


@contextmanager
def within_then() -> Iterator[None]:
    """Prefix fields of errors raised in the block by ``source.then`` instead of ``source``."""
    try:
        yield
    except PlannerError as error:
        if error.field.startswith("source.") and not error.field.startswith("source.then"):
            error.field = "source.then." + error.field.removeprefix("source.")
        raise
