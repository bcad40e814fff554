"""Tests that Flink's windows give the same view as Spark's, in any spelling."""

from __future__ import annotations

import pytest

from anabranch_contract.queries.views import TimeWindow
from anabranch_planner.passes import parse_sql
from tests.support.cases.refusals import refusal
from tests.support.cases.sample_streams import sample_streams

MINUTES = 60_000_000
TEN = "INTERVAL '10' MINUTE"
FIVE = "INTERVAL '5' MINUTE"


def window_of(sql: str) -> TimeWindow:
    view = parse_sql("q", sql, sample_streams()).view
    assert view is not None
    assert view.window is not None
    return view.window


@pytest.mark.parametrize(
    ("call", "spark"),
    [
        (f"TUMBLE{{}}(R.ts, {TEN})", "window(R.ts, '10 minutes')"),
        (f"tumble{{}}(ts, {TEN}, {FIVE})", "window(ts, '10 minutes', '10 minutes', '5 minutes')"),
        (f"HOP{{}}(ts, {FIVE}, {TEN})", "window(ts, '10 minutes', '5 minutes')"),
        (f"SESSION{{}}(ts, {FIVE})", "session_window(ts, '5 minutes')"),
        (f"CUMULATE{{}}(ts, {FIVE}, {TEN})", "cumulate(ts, '5 minutes', '10 minutes')"),
    ],
)
def test_functions_in_group_by(call: str, spark: str) -> None:
    begun, ended = (call.format(edge) for edge in ("_START", "_END"))
    flink = f"SELECT {begun} AS s, {ended} AS e, count(*) AS n FROM R GROUP BY {call.format('')}"
    own = f"SELECT {spark}.start AS s, {spark}.end AS e, count(*) AS n FROM R GROUP BY {spark}"
    assert parse_sql("q", flink, sample_streams()) == parse_sql("q", own, sample_streams())


@pytest.mark.parametrize(
    ("call", "spark"),
    [
        (f"TUMBLE(TABLE R, DESCRIPTOR(ts), {TEN})", "window(R.ts, '10 minutes')"),
        (
            f"TUMBLE(DATA => TABLE R, TIMECOL => DESCRIPTOR(ts), SIZE => {TEN}, OFFSET => {FIVE})",
            "window(R.ts, '10 minutes', '10 minutes', '5 minutes')",
        ),
        (f"HOP(TABLE R, DESCRIPTOR(ts), {FIVE}, {TEN})", "window(R.ts, '10 minutes', '5 minutes')"),
        (
            f"HOP(DATA => TABLE R, TIMECOL => DESCRIPTOR(ts), SIZE => {TEN}, SLIDE => {FIVE})",
            "window(R.ts, '10 minutes', '5 minutes')",
        ),
    ],
)
@pytest.mark.parametrize("around", ["TABLE({})", "{}", "TABLE({}) AS w", "TABLE({}) w"])
@pytest.mark.parametrize("keys", ["window_start, window_end", "window_end", "window_start"])
def test_functions_in_from(call: str, spark: str, around: str, keys: str) -> None:
    shown = "SELECT {0}, max({1}) AS m, count(*) AS n FROM {2} GROUP BY {3} HAVING {0} IS NOT NULL"
    qualifier = "w." if "w" in around else ""
    flink = shown.format(f"{qualifier}window_start", "k", around.format(call), f"{qualifier}{keys}")
    table = "R AS w" if qualifier else "R"
    spelled = spark.replace("R.", "w.") if qualifier else spark
    own = shown.format("window.start", "k", table, spelled)
    own = own.replace("SELECT window.start", "SELECT window.start AS window_start")
    assert parse_sql("q", flink, sample_streams()) == parse_sql("q", own, sample_streams())


def test_a_window_of_one_stream_of_a_join() -> None:
    flink = (
        f"SELECT window_start, S.x, count(*) AS n FROM S, TABLE(TUMBLE(TABLE R, DESCRIPTOR(ts), "
        f"{TEN})) AS w WHERE w.k = S.k GROUP BY window_start, window_end, ROLLUP (S.x)"
    )
    query = parse_sql("q", flink, sample_streams(), 10**9)
    assert query.view is not None
    assert query.view.sets == ((0,), ())
    assert {o.name: str(o.expr) for o in query.projection}["w"] == "R.ts"


@pytest.mark.parametrize(
    ("partition", "keys"),
    [
        ("", ""),
        ("PARTITION BY k", ", k"),
        ("PARTITION BY (k, x)", ", x, k"),
        ("PARTITION BY k, x", ", k, w.x"),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_sessions_are_of_the_other_keys(partition: str, keys: str, named: bool) -> None:
    table = f"TABLE R {partition}"
    arguments = (
        f"DATA => {table}, TIMECOL => DESCRIPTOR(ts), GAP => {FIVE}"
        if named
        else f"{table}, DESCRIPTOR(ts), {FIVE}"
    )
    sql = f"SELECT count(*) AS n FROM TABLE(SESSION({arguments})) w GROUP BY window_start{keys}"
    assert window_of(sql) == TimeWindow("w", 5 * MINUTES, 5 * MINUTES, 0, session=True)


@pytest.mark.parametrize(
    ("arguments", "window"),
    [
        (f"TABLE R, DESCRIPTOR(ts), {FIVE}, {TEN}", (10, 0, 5)),
        (f"TABLE R, DESCRIPTOR(ts), {FIVE}, INTERVAL '1' DAY, {TEN}", (1440, 10, 5)),
        (f"DATA => TABLE R, TIMECOL => DESCRIPTOR(ts), SIZE => {TEN}, STEP => {TEN}", (10, 0, 10)),
    ],
)
@pytest.mark.parametrize("keys", ["window_start, window_end", "window_end"])
def test_cumulating_windows(arguments: str, window: tuple[int, int, int], keys: str) -> None:
    length, start, step = (n * MINUTES for n in window)
    sql = f"SELECT window_start, count(*) AS n FROM TABLE(CUMULATE({arguments})) w GROUP BY {keys}"
    assert window_of(sql) == TimeWindow("w", length, length, start, step=step)


@pytest.mark.parametrize("sizes", ["0, 1", "2, 3", "-1, 1", "1, 2, 2"])
def test_sizes_of_cumulating_windows_are_multiples_of_the_step(sizes: str) -> None:
    durations = ", ".join(f"INTERVAL '{n}' HOUR" for n in sizes.split(", "))
    error = refusal(f"SELECT 1 AS n FROM R GROUP BY CUMULATE(ts, {durations})")
    assert (error.code, error.position) == ("bad-window", (1, 31))


def test_starts_of_cumulating_windows_do_not_tell_them_apart() -> None:
    windows = f"FROM R GROUP BY CUMULATE(ts, {FIVE}, {TEN})"
    shown = f"SELECT DISTINCT CUMULATE_{{}}(ts, {FIVE}, {TEN}) AS x {windows}"
    assert parse_sql("q", shown.format("END"), sample_streams()).view
    error = refusal(shown.format("START"))
    assert error.message == "DISTINCT of groups whose keys are not all shown is not supported"


TUMBLE = f"TABLE(TUMBLE(TABLE R, DESCRIPTOR(ts), {TEN}))"


@pytest.mark.parametrize(
    ("sql", "position", "message"),
    [
        (f"SELECT window_start FROM {TUMBLE}", (1, 32), "a window in FROM without GROUP BY of it"),
        (
            f"SELECT count(*) AS n\nFROM {TUMBLE} WHERE window_start > ts GROUP BY window_start",
            (2, 73),
            "window_start in WHERE or ON",
        ),
        (
            f"SELECT window_time FROM {TUMBLE} GROUP BY window_start",
            (1, 8),
            "window_time",
        ),
        (
            f"SELECT count(*) AS n FROM {TUMBLE} a JOIN {TUMBLE} b USING (k) GROUP BY window_end",
            (1, 101),
            "a second window",
        ),
        (
            f"SELECT 1 AS n FROM {TUMBLE} GROUP BY ROLLUP (window_start)",
            (1, 26),
            "a window inside ROLLUP, CUBE or GROUPING SETS",
        ),
        (
            f"SELECT 1 AS n FROM TABLE(CUMULATE(TABLE R, DESCRIPTOR(ts), {FIVE}, {TEN})) "
            "GROUP BY window_start",
            (1, 26),
            "CUMULATE() without GROUP BY of window_end",
        ),
        ("SELECT 1 AS n FROM R GROUP BY CUMULATE(ts, ts)", (1, 31), "CUMULATE() of 2 arguments"),
        (
            f"SELECT 1 AS n FROM TABLE(SESSION(TABLE R PARTITION BY k, DESCRIPTOR(ts), {TEN})) "
            "GROUP BY window_start",
            (1, 26),
            "a session with another PARTITION BY than the keys of GROUP BY",
        ),
        (
            f"SELECT 1 AS n FROM TABLE(TUMBLE(TABLE db.R, DESCRIPTOR(ts), {TEN})) "
            "GROUP BY window_start",
            (1, 26),
            "TUMBLE() of another table than a stream",
        ),
        ("SELECT 1 AS n FROM R GROUP BY TUMBLE(ts)", (1, 31), "TUMBLE() of 1 arguments"),
        (f"SELECT 1 AS n FROM R GROUP BY HOP(ts, {TEN})", (1, 31), "HOP() of 2 arguments"),
        (
            f"SELECT TUMBLE_ROWTIME(ts, {TEN}) AS r FROM R GROUP BY TUMBLE(ts, {TEN})",
            (1, 8),
            "TUMBLE_ROWTIME()",
        ),
        (
            f"SELECT TUMBLE_START(ts, {FIVE}) AS r FROM R GROUP BY TUMBLE(ts, {TEN})",
            (1, 8),
            "a window other than the one in GROUP BY",
        ),
    ],
)
def test_windows_without_an_equal(sql: str, position: tuple[int, int], message: str) -> None:
    error = refusal(sql)
    assert (error.code, error.message) == ("unsupported-sql", f"{message} is not supported")
    assert error.position == position
    assert error.remedy


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT hop.k FROM R AS hop",
        "SELECT hop.a FROM (SELECT k FROM R) hop(a)",
        "SELECT hop.a FROM (SELECT k FROM R) AS hop(a)",
        "WITH r1 AS (SELECT k FROM R), hop(a) AS (SELECT k FROM R) SELECT a FROM hop",
        "SELECT k AS session FROM R",
    ],
)
def test_names_are_no_windows(sql: str) -> None:
    assert parse_sql("q", sql, sample_streams()).projection
