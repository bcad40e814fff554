"""Tests of file directories that the runtime reads itself, leaves to Spark, or refuses."""

from __future__ import annotations

import pytest

from anabranch_contract.connectors.file_sources import (
    check_nested,
    is_own,
    own_files,
    sparks_option,
)
from anabranch_contract.connectors.sources import OnChangedFile, OnLoss
from anabranch_contract.errors import StreamError
from anabranch_contract.queries.types import parse_type
from anabranch_planner.sources.check_source import check_source

COLUMNS = [("a", parse_type("bigint"))]


@pytest.mark.parametrize(
    ("format", "options", "option"),
    [
        ("csv", {}, None),
        ("csv", {"HEADER": "TRUE", "Sep": "\\t", "mode": "permissive"}, None),
        ("csv", {"multiLine": "true", "encoding": "UTF-8", "on_bad_file": "skip"}, None),
        ("csv", {"pathGlobFilter": "*.csv", "ignoreLeadingWhiteSpace": "false"}, None),
        ("csv", {"pathGlobFilter": "{a,b}.csv"}, "option pathGlobFilter"),
        ("csv", {"ignoreLeadingWhiteSpace": "true"}, "option ignoreLeadingWhiteSpace"),
        ("csv", {"sep": "||"}, "option sep"),
        ("csv", {"encoding": "ISO-8859-1"}, "option encoding"),
        ("csv", {"mode": "FAILFAST"}, "option mode"),
        ("csv", {"schema": "a bigint"}, "option schema"),
        ("json", {"mode": "PERMISSIVE", "multiLine": "false"}, None),
        ("json", {"multiLine": "true"}, "option multiLine"),
        ("json", {"payload": "json"}, "option payload"),
        ("json", {"header": "true"}, "option header"),
        ("json", {"column.a": "b"}, "option column.a"),
    ],
)
def test_options_decide_who_reads(format: str, options: dict[str, str], option: str | None) -> None:
    assert sparks_option(format, "/in", options) == option
    assert is_own(format, "/in", options) == (option is None)
    assert (own_files(format, "/in", options) is None) == (option is not None)
    assert not is_own(format, "s3://bucket/in", options)
    assert not is_own("parquet", "/in", {})


def test_policies_are_of_what_the_runtime_reads() -> None:
    found = own_files("json", "file:///in", {"on_bad_file": "skip", "on_changed_file": "stop"})
    assert found is not None
    assert (found.on_bad_file, found.on_changed_file) == (OnLoss.SKIP, OnChangedFile.STOP)
    assert found.spark == "json"
    with pytest.raises(StreamError, match="because of its option dateFormat"):
        own_files("csv", "/in", {"dateFormat": "dd.MM.yyyy", "on_bad_file": "skip"})
    with pytest.raises(StreamError, match="because of its path"):
        own_files("csv", "s3://bucket/in", {"on_changed_file": "read"})


@pytest.mark.parametrize("more", [{}, {"dateFormat": "dd.MM.yyyy"}])
def test_options_by_which_rows_would_vanish_or_change_are_refused(more: dict[str, str]) -> None:
    for format, options, why in (
        ("csv", {"mode": "DropMalformed"}, "would vanish"),
        ("json", {"mode": "DROPMALFORMED"}, "would vanish"),
        ("csv", {"header": "true", "enforceSchema": "true"}, "by position"),
    ):
        with pytest.raises(StreamError, match=why):
            check_source(format, "/in", {**options, **more}, COLUMNS)
    assert check_source("csv", "/in", {"enforceSchema": "true"}, COLUMNS) is None


@pytest.mark.parametrize(
    ("format", "options", "kind", "where"),
    [
        ("csv", {}, "array<int>", "texts"),
        ("files", {"type": "csv"}, "struct<a:int>", "texts"),
        ("redis-stream", {"payload": "fields"}, "array<int>", "texts"),
        ("json", {}, "map<int,int>", "JSON objects"),
        ("redis-stream", {}, "array<map<date,int>>", "JSON objects"),
        ("json", {}, "map<string,array<map<string,int>>>", None),
        ("json", {}, "array<struct<a:int>>", None),
        ("files", {"type": "parquet"}, "map<string,int>", None),
        ("parquet", {}, "map<string,int>", None),
        ("csv", {}, "int", None),
        ("json", {}, "variant", None),
        ("redis-stream", {}, "variant", None),
        ("csv", {}, "variant", "this source"),
        ("files", {"type": "parquet"}, "variant", "this source"),
        ("json", {}, "array<variant>", "a source of JSON"),
    ],
)
def test_nested_columns_are_read_where_values_are(
    format: str, options: dict[str, str], kind: str, where: str | None
) -> None:
    columns = [("k", parse_type("int")), ("n", parse_type(kind))]
    if where is None:
        check_nested(columns, format, "/in", options)
        return
    with pytest.raises(StreamError, match=f"is not read from {where}") as error:
        check_nested(columns, format, "/in", options)
    assert error.value.field == "columns.n"
    assert error.value.remedy
