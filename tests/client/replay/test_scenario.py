"""Tests of scenario files: parsed contents, and the message for each kind of mistake."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch_client.errors import ScenarioError
from anabranch_client.replay.player import schedule
from anabranch_client.replay.scenario import load_scenario

GOOD = """
streams:
  flights: {path: flights.parquet, event_time: ts, lateness: 5 minutes, rows_per_batch: 2}
  weather: {path: weather.parquet, rows_per_batch: 3}
queries:
  delays:
    sql: SELECT f.id FROM flights f JOIN weather w ON f.origin = w.origin
    window: {f: 1 hour, w: PT30M}
    register_at: 2
    expire_at: 5
  all: {sql: SELECT 1, window: 1 day}
epochs: {every: 3}
optimizer: {4: individual, 0: shared}
parallelism: 2
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    moments = pa.array([0, 1, 2, 3, 4], pa.timestamp("us", tz="UTC"))
    flights = pa.table({"id": [1, 2, 3, 4, 5], "origin": list("abcde"), "ts": moments})
    pq.write_table(flights, tmp_path / "flights.parquet")
    weather = pa.table({"origin": list("abcd"), "wind": pa.array([1, 2, 3, 4], pa.int16())})
    pq.write_table(weather, tmp_path / "weather.parquet")
    odd = pa.table({"id": [1], "tags": pa.array([[1]], pa.list_(pa.time64("us")))})
    pq.write_table(odd, tmp_path / "lists.parquet")
    pq.write_table(pa.table([[1], [2]], names=["id", "ID"]), tmp_path / "twice.parquet")
    (tmp_path / "text.parquet").write_text("id,origin")
    (tmp_path / "folder.parquet").mkdir()
    return tmp_path


def load(folder: Path, text: str) -> object:
    path = folder / "SCENARIO.yaml"
    path.write_text(text)
    return load_scenario(path)


def test_a_good_scenario_is_read_with_the_columns_of_its_files(folder: Path) -> None:
    (folder / "SCENARIO.yaml").write_text(GOOD)
    scenario = load_scenario(folder / "SCENARIO.yaml")
    flights, weather = scenario.streams
    assert flights.columns == (("id", "bigint"), ("origin", "string"), ("ts", "timestamp"))
    assert weather.columns == (("origin", "string"), ("wind", "smallint"))
    assert (flights.rows, flights.batches, flights.options["lateness"]) == (5, 3, "5 minutes")
    assert (weather.batches, weather.options["lateness"]) == (2, "unbounded")
    assert weather.options["event_time"] is None
    assert flights.path == (folder / "flights.parquet").resolve()
    delays, everything = scenario.queries
    assert delays.window == {"f": "1 hour", "w": "PT30M"}
    assert (delays.register_at, delays.expire_at) == (2, 5)
    assert (everything.register_at, everything.expire_at) == (0, None)
    assert scenario.optimizer == {0: "shared", 4: "individual"}
    assert list(scenario.optimizer) == [0, 4]
    assert (scenario.every, scenario.parallelism, scenario.batches) == (3, 2, 3)


@pytest.mark.parametrize(
    ("written", "most"), [("", None), ("any", None), ("never", 0), ("0", 0), ("3", 3)]
)
def test_intermediate_results_are_capped_by_word_or_number(
    folder: Path, written: str, most: int | None
) -> None:
    line = f"intermediate_results: {written}\n" if written else ""
    path = folder / "SCENARIO.yaml"
    path.write_text(GOOD + line)
    assert load_scenario(path).intermediate_results == most


def test_an_objective_may_be_stated(folder: Path) -> None:
    path = folder / "SCENARIO.yaml"
    path.write_text(GOOD)
    assert load_scenario(path).objective is None
    path.write_text(GOOD + "objective: tuples\n")
    assert load_scenario(path).objective == "tuples"


def test_one_optimizer_is_for_all_batches_and_clash_is_the_default(folder: Path) -> None:
    text = "streams: {w: {path: weather.parquet, rows_per_batch: 9}}\n"
    (folder / "a.yaml").write_text(text + "optimizer: individual\n")
    (folder / "b.yaml").write_text(text)
    (folder / "c.yaml").write_text(text + "optimizer: {3: shared}\n")
    assert load_scenario(folder / "a.yaml").optimizer == {0: "individual"}
    assert load_scenario(folder / "b.yaml").optimizer == {0: "clash"}
    assert load_scenario(folder / "c.yaml").optimizer == {0: "clash", 3: "shared"}


@pytest.mark.parametrize(
    ("retention", "said"),
    [
        ("{ttl: 1 day}", {0: ("1 day", None)}),
        (
            "{4: {ttl: PT2H}, 0: {ttl: 1 day}, 6: null}",
            {0: ("1 day", None), 4: ("PT2H", None), 6: (None, None)},
        ),
        ("{latest: [origin]}", {0: (None, ("origin",))}),
        (
            "{0: {latest: [origin, ID], ttl: 1 day}, 2: {ttl: 1 day}}",
            {0: ("1 day", ("origin", "ID")), 2: ("1 day", None)},
        ),
        ("null", {}),
        ("{}", {}),
    ],
)
def test_retention_by_batch(
    folder: Path, retention: str, said: dict[int, tuple[str | None, tuple[str, ...] | None]]
) -> None:
    text = GOOD.replace("event_time: ts", f"event_time: ts, retention: {retention}")
    (folder / "SCENARIO.yaml").write_text(text)
    scenario = load_scenario(folder / "SCENARIO.yaml")
    found = {b: (r.ttl, r.latest) for b, r in scenario.streams[0].retention.items()}
    assert found == said
    calls = {b: c.retention for b, c in schedule(scenario).items() if c.retention}
    assert {b: [(s, (r.ttl, r.latest)) for s, r in c] for b, c in calls.items()} == {
        batch: [("flights", one)] for batch, one in said.items() if batch
    }


BAD = [
    ("path: flights.parquet", "path: nowhere.parquet", "streams.flights.path", "missing"),
    ("path: flights.parquet", "path: folder.parquet", "streams.flights.path", "folder"),
    ("path: flights.parquet", "path: text.parquet", "streams.flights.path", "not a readable"),
    ("path: weather.parquet", "path: lists.parquet", "streams.weather.path", "'tags'"),
    ("path: weather.parquet", "path: twice.parquet", "streams.weather.path", "more than once"),
    ("path: weather.parquet, ", "", "streams.weather.path", "missing"),
    ("event_time: ts", "event_time: when", "streams.flights.event_time", "unknown"),
    ("event_time: ts", "event_time: id", "streams.flights.event_time", "is a bigint"),
    ("lateness: 5 minutes", "lateness: soon", "streams.flights.lateness", "not a duration"),
    ("lateness: 5 minutes", "lateness: 5 months", "streams.flights.lateness", "not a unit"),
    ("lateness: 5 minutes", "lateness: PT", "streams.flights.lateness", "not an ISO 8601"),
    ("rows_per_batch: 2", "rows_per_batch: 0", "streams.flights.rows_per_batch", "not 0"),
    ("rows_per_batch: 2", "rows_per_batch: 2.5", "streams.flights.rows_per_batch", "integer"),
    ("rows_per_batch: 2", "rows_per_batch: true", "streams.flights.rows_per_batch", "integer"),
    ("rows_per_batch: 2", "rows: 2", "streams.flights.rows_per_batch", "missing"),
    ("event_time: ts", "colour: red", "streams.flights.colour", "unknown key"),
    (
        "event_time: ts",
        "event_time: ts, retention: {ttl: soon}",
        "streams.flights.retention.0.ttl",
        "not a duration",
    ),
    (
        "event_time: ts",
        "event_time: ts, retention: {-1: null}",
        "streams.flights.retention.-1",
        "-1",
    ),
    ("event_time: ts", "event_time: ts, retention: 5", "streams.flights.retention", "5"),
    (
        "event_time: ts",
        "event_time: ts, retention: {rows: 5}",
        "streams.flights.retention.0.rows",
        "a retention has ttl, latest",
    ),
    (
        "event_time: ts",
        "event_time: ts, retention: {3: {ttl: 1 day, rows: 5}}",
        "streams.flights.retention.3.rows",
        "a retention has ttl",
    ),
    (
        "path: weather.parquet",
        "path: weather.parquet, retention: {ttl: 1 day}",
        "streams.weather",
        "event time",
    ),
    ("  weather:", "  Flights:", "streams", "differ in case only"),
    ("  weather:", "  we/ather:", "streams", "not a valid name"),
    ("  delays:", "  ../delays:", "queries", "not a valid name"),
    ("  all:", "  delays:", "", "more than once"),
    ("  all:", "  7:", "queries.7", "string"),
    ("sql: SELECT 1", "sql: ''", "queries.all.sql", "empty"),
    ("sql: SELECT 1, ", "", "queries.all.sql", "missing"),
    ("w: PT30M", "w: 7", "queries.delays.window", "7 is not a duration"),
    ("window: 1 day", "window: 5", "queries.all.window", "5 is not a duration"),
    ("register_at: 2", "register_at: -1", "queries.delays.register_at", "-1"),
    ("register_at: 2", "register_at: six", "queries.delays.register_at", "six"),
    ("expire_at: 5", "expire_at: 1", "queries.delays", "before register_at"),
    ("every: 3", "every: 0", "epochs.every", "0"),
    ("every: 3", "length: 3", "epochs.length", "epochs has every"),
    ("4: individual", "4: guess", "optimizer.4", "guess"),
    ("0: shared", "-3: shared", "optimizer.-3", "-3"),
    ("parallelism: 2", "parallelism: 0", "parallelism", "0"),
    ("parallelism: 2", "objective: default", "objective", "tuples"),
    ("parallelism: 2", "intermediate_results: none", "intermediate_results", "never, any"),
    ("parallelism: 2", "intermediate_results: -1", "intermediate_results", "-1"),
    ("parallelism: 2", "intermediate_results: 1.5", "intermediate_results", "1.5"),
    ("parallelism: 2", "speed: 2", "speed", "the scenario has streams"),
    ("streams:", "streams: {}\nsteams:", "streams", "at least 1"),
    ("epochs: {every: 3}", "epochs: {every: 3", "", "line"),
    ("epochs: {every: 3}", "revisions: {evry: 3}", "revisions.every", "missing"),
    ("epochs: {every: 3}", "revisions: {every: 3, gian: 1}", "revisions.gian", "mean gain?"),
    ("register_at: 2", "register_at: 3", "queries.delays.register_at", "last batch is 2"),
    ("rows_per_batch: 2", "rows_per_bach: 2", "streams.flights.rows_per_batch", "missing"),
    ("event_time: ts", "event_time: when", "streams.flights.event_time", "id, origin, ts"),
    (
        "event_time: ts",
        "event_time: ts, retention: {latest: [origin, where]}",
        "streams.flights.retention.0.latest",
        "'where' is unknown",
    ),
]


@pytest.mark.parametrize(
    ("good", "bad", "field", "words"), BAD, ids=[f"{bad} @{field}" for _, bad, field, _ in BAD]
)
def test_a_mistake_is_one_line_that_names_the_field(
    folder: Path, good: str, bad: str, field: str, words: str
) -> None:
    assert GOOD.count(good) >= 1
    with pytest.raises(ScenarioError) as caught:
        load(folder, GOOD.replace(good, bad, 1))
    assert caught.value.exit_code == 2
    assert caught.value.remedy or words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{field}: " if field else "")
    assert words in str(caught.value)
    if field:
        assert caught.value.field.startswith(field)


def test_all_that_is_wrong_is_said_at_once(folder: Path) -> None:
    text = GOOD.replace("flights.parquet", "none.parquet").replace(
        "weather.parquet", "text.parquet"
    )
    with pytest.raises(ScenarioError, match=r"streams\.flights\.path") as caught:
        load(folder, text)
    assert [error.field for error in caught.value.further] == ["streams.weather.path"]
    text = GOOD.replace("event_time: ts", "colour: red").replace("every: 3", "every: 0")
    with pytest.raises(ScenarioError, match=r"flights\.colour: unknown key, line 3") as caught:
        load(folder, text)
    assert [error.field for error in caught.value.further] == ["epochs.every"]


@pytest.mark.parametrize("text", ["", "- a list", "just words", "7"])
def test_a_file_that_is_no_mapping_is_refused(folder: Path, text: str) -> None:
    with pytest.raises(ScenarioError, match="not a mapping"):
        load(folder, text)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot read"):
        load_scenario(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="UTF-8"):
        load_scenario(tmp_path / "binary.yaml")


@pytest.mark.parametrize(
    "duration",
    ["0 seconds", "1 hour", "2 WEEKS", "15 milliseconds", "PT0.5S", "P1DT2H", "P2W", "PT36H"],
)
def test_durations_that_are_understood(folder: Path, duration: str) -> None:
    load(folder, GOOD.replace("5 minutes", duration))
