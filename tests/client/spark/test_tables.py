"""Tests of finding a table's location in Spark's DESCRIBE; others are
in e2e/test_spark_tables.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anabranch_client.errors import UsageError
from anabranch_client.spark import table
from anabranch_client.spark.tables import located

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = [("id", "bigint"), ("Location", "string"), ("Provider", "string"), ("", "")]
#: As Spark 4.1 with Delta 4.3 and Iceberg 1.12 describes tables, and Spark 4.3.
OLDER = [*COLUMNS, ("# Detailed Table Information", "")]
DELTA = [("Type", "MANAGED"), ("Location", "file:/w/moved tables/é"), ("Provider", "delta")]
ICEBERG = [("Type", "MANAGED"), ("Location", "/w/db/orders"), ("Provider", "iceberg")]
NEWER = [*OLDER, ("Catalog", "lake"), ("Namespace", "a.b"), ("Database", "a.b"), ("Table", "o")]


def place(rows: list[tuple[str, str]], **given: Any) -> dict[str, Any]:
    return located("t", rows, **{"catalog": None, "path": None, "options": {}, **given})


def test_places_of_tables() -> None:
    name = ("Name", "spark_catalog.default.orders")
    delta = {"format": "delta", "path": "/w/moved tables/é", "options": {}}
    assert place([*OLDER, name, *DELTA]) == delta
    options = {"start": "latest"}
    assert place([*NEWER, *DELTA], path="/mnt/o", options=options) == {
        "format": "delta", "path": "/mnt/o", "options": options,
    }  # fmt: skip
    iceberg = place([*OLDER, ("Name", "lake.`my-db`.orders"), *ICEBERG], options=options)
    assert iceberg == {
        "format": "iceberg", "options": {"table": "lake.my-db.orders", "start": "latest"},
    }  # fmt: skip
    assert place([*NEWER, *ICEBERG])["options"] == {"table": "lake.a.b.o"}
    given = place([*OLDER, name, *ICEBERG], catalog="glue")
    assert given["options"] == {"table": "glue.default.orders"}


@pytest.mark.parametrize(
    ("rows", "given", "field", "text"),
    [
        (COLUMNS, {}, "table", "is a view"),
        ([*OLDER, ("Type", "VIEW")], {}, "table", "is a view"),
        ([*OLDER, ("Type", "MANAGED")], {}, "table", "of the format of another kind"),
        ([*OLDER, ("Provider", "parquet")], {}, "table", "of the format parquet, not delta or"),
        ([*OLDER, *DELTA], {"catalog": "lake"}, "catalog", "of the format delta"),
        ([*NEWER, *ICEBERG], {"path": "/x"}, "path", "of the format iceberg"),
        ([*OLDER, ("Name", "spark_catalog.d.o"), *ICEBERG], {}, "catalog", "session catalog"),
        ([*OLDER, ("Provider", "delta"), ("Location", "s3a://b/o")], {}, "path", "at 's3a://b/o'"),
        ([*OLDER, ("Provider", "delta")], {}, "path", "a place that Spark does not name"),
    ],
)
def test_refused_places(
    rows: list[tuple[str, str]], given: dict[str, Any], field: str, text: str
) -> None:
    with pytest.raises(UsageError, match=text) as refused:
        place(rows, **given)
    assert refused.value.field == field


@pytest.mark.spark
def test_what_is_no_table_of_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE plain (a INT) USING parquet LOCATION '{tmp_path}/plain'")
    spark.sql("CREATE VIEW seen AS SELECT * FROM plain")
    spark.sql("CREATE TEMPORARY VIEW passing AS SELECT 1 AS a")
    try:
        for name, text in {
            "plain": "'plain' is a table of the format parquet, not delta or iceberg",
            "spark_catalog.default.plain": "of the format parquet",
            "seen": "'seen' is a view",
            "passing": "'passing' is a view",
            "absent": r"describes no table 'absent': \[TABLE_OR_VIEW_NOT_FOUND\]",
            "a.b.c": "describes no table 'a.b.c'",
            "plain PARTITION (a = 1)": "describes no table",
            "plain; DROP TABLE plain": "describes no table",
        }.items():
            with pytest.raises(UsageError, match=text):
                table(spark, name)
    finally:
        spark.sql("DROP VIEW IF EXISTS passing")
        spark.sql("DROP VIEW seen")
        spark.sql("DROP TABLE plain")
