"""Checks of a stream's source at registration: rejects sources that the runtime could not read."""

from __future__ import annotations

import re
from collections.abc import Mapping

from anabranch_contract.connectors.file_sources import own_files
from anabranch_contract.connectors.kafka_sources import check_parts, is_own_topic, kafka_options
from anabranch_contract.connectors.lake.options import LAKE, table_options
from anabranch_contract.connectors.postgres.options import POSTGRES, postgres_options
from anabranch_contract.connectors.sources import (
    RECORDED,
    REDIS_STREAM,
    SPARK_FILES,
    bad_option,
    redis_stream_options,
)
from anabranch_contract.connectors.spark_source import WITH_CORRUPT, SparkSource
from anabranch_contract.errors import StreamError
from anabranch_planner.sources.spark_source import Columns, spark_source

#: Options of Spark's sources that must be positive; at a negative rate Spark sends nothing.
_POSITIVE = frozenset({
    "rowspersecond", "rowsperbatch", "numpartitions", "maxfilespertrigger", "maxoffsetspertrigger",
})  # fmt: skip


def check_source(
    format: str, path: str | None, options: Mapping[str, str], columns: Columns
) -> SparkSource | None:
    """Reject a source that can't be read into a stream of ``columns``.

    Returns:
        Instructions for reading the source with Spark; None if the runtime reads it without Spark.

    Raises:
        PlannerError: an option is unknown or has an invalid value, or the path is missing; for
            Spark's formats also the errors of :func:`~.spark_source.spark_source`.
    """
    if format in WITH_CORRUPT:
        _check_records(options)
    if format == REDIS_STREAM:
        redis_stream_options(options)
    elif is_own_topic(format, options):
        check_parts(kafka_options(options), columns)
    elif format in LAKE:
        table_options(format, path, options)
    elif format == POSTGRES:
        postgres_options(options)
    elif format != RECORDED and own_files(format, path, options) is None:
        found = spark_source(format, options, columns)
        _complete(format, path, options)
        return found
    return None


def _check_records(options: Mapping[str, str]) -> None:
    """Reject a Spark source's options that would drop records or put values into wrong columns."""
    given = {name.lower(): (name, text.lower()) for name, text in options.items()}
    name, mode = given.get("mode", ("mode", ""))
    if mode == "dropmalformed":
        raise bad_option(
            name,
            "records that do not fit the columns would vanish",
            "leave it out: each such record is rejected by itself",
        )
    name, enforced = given.get("enforceschema", ("enforceSchema", ""))
    if enforced == "true" and given.get("header", ("", ""))[1] == "true":
        raise bad_option(
            name,
            "columns would be taken by position, whatever the header says",
            "leave it out: columns are taken by the names in the header",
        )


def _complete(format: str, path: str | None, options: Mapping[str, str]) -> None:
    """Reject a Spark source without an option that its format requires, or with an option value
    that would yield no rows, or too few."""
    given = {name.lower() for name in options}
    if format in (*SPARK_FILES, "text") and not path and "path" not in given:
        raise StreamError(
            "incomplete-source",
            f"a {format} source needs the path of a directory",
            field="source.path",
            remedy="give the path on the machine of the runtime",
        )
    for name, text in options.items():
        if name.lower() in _POSITIVE and re.fullmatch(r"0*[1-9][0-9]{0,17}", text, re.A) is None:
            raise bad_option(
                name, f"{text[:60]!r} is not a positive number", "give a whole number from 1 on"
            )
    if format == "kafka":
        if "kafka.bootstrap.servers" not in given:
            name = "kafka.bootstrap.servers"
            raise bad_option(name, "a kafka source needs its brokers", "name them")
        if not given & {"subscribe", "subscribepattern", "assign"}:
            raise bad_option("subscribe", "a kafka source needs its topics", "name them")
