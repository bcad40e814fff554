"""What a registration may not make Spark do, tried with Spark itself.

The service refuses these when they are registered; a record may be older than that, so the runtime
refuses them by itself.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from anabranch_runtime.control import ColumnRecord, SourceRecord, StreamRecord
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.spark_stream import spark_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _named_sources(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")


ENVIRONMENT = "reflect('java.lang.System', 'getenv', 'HOME')"
HOME = os.environ.get("HOME", "")


def record(
    format: str, column: str = "a", kind: str = "string", path: Path | None = None, **options: str
) -> StreamRecord:
    given = {name.replace("__", "."): text for name, text in options.items()}
    return StreamRecord(
        name="s",
        columns=(ColumnRecord(name=column, type=kind),),
        source=SourceRecord(format=format, path=path and str(path), options=given),
    )


def values(session: SparkSession, given: StreamRecord, home: Path) -> list[object]:
    """All that Spark reads of the source now."""
    found: list[object] = []

    def take(frame: DataFrame, batch: int) -> None:
        found.extend(frame.toArrow().column(0).to_pylist())

    query = (
        spark_rows(session, given)
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(home / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return found


@pytest.mark.parametrize(
    "given",
    [
        record("text", column__a=ENVIRONMENT),
        record("text", column__a=ENVIRONMENT.replace("reflect", "java_method")),
        record("text", column__a=ENVIRONMENT.replace("reflect", "`try_reflect`")),
        record("text", column__a="CASE WHEN true THEN " + ENVIRONMENT + " END"),
        record("text", column__a="(SELECT max(value) FROM text.`/etc/hostname`)"),
        record("text", column__a="input_file_name()"),
        record("text", column__a="value AS string), " + ENVIRONMENT + " AS b, CAST(value"),
        record("text", column__a="string(value) || current_user()"),
        # A column's type, and a schema, were put into a text as they are.
        record("text", kind="string) as x, " + ENVIRONMENT + " as y, cast(value as string"),
        record("csv", schema="a string, b string generated always as (" + ENVIRONMENT + ")"),
        record("csv", schema="a int) --"),
        record("text", column="${env:HOME}", column__x="value"),
    ],
    ids=range(12),
)
def test_text_of_a_registration_never_reaches_spark(
    spark: SparkSession, tmp_path: Path, given: StreamRecord
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1").write_text("one\n")
    source = given.source.model_copy(update={"path": str(tmp_path / "in")})
    with pytest.raises(SourceError) as caught:
        spark_rows(spark, given.model_copy(update={"source": source}))
    # Refused here, not by Spark.
    assert caught.value.code != "bad-source"
    assert caught.value.field.startswith("streams.s.")
    assert HOME not in str(caught.value)


@pytest.mark.slow
def test_names_and_literals_are_quoted(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1").write_text('{"a`b\'c\\"": 5}\n')
    odd = record("text", "a`b'c\"", "bigint", tmp_path / "in", payload="json")
    assert values(spark, odd, tmp_path / "one") == [5]
    literal = record("text", path=tmp_path / "in", column__a="concat('${env:HOME}', '\\\\', '''')")
    assert values(spark, literal, tmp_path / "two") == ["${env:HOME}\\'"]
