"""Tests of problem files of the planner command: parsed problems, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Objective
from anabranch_contract.queries.joins import AttrRef, Equality, Label, RelationId
from anabranch_planner.command.problem_file import ProblemFile, parse_problem
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.documents.fields import ProblemError
from anabranch_planner.documents.structured import read_document
from anabranch_planner.documents.yaml import load_yaml
from anabranch_planner.passes import parse_sql
from benchmarks.papers.clash.environment import (
    RandomProblem,
    natural_problem,
    tree_problem,
    write_yaml,
)
from benchmarks.planner.random_queries import join_queries, statistics_of
from tests.support.cases.queries import equality

STREAMS = "streams: {R: {rate: 100}, S: {rate: 200}, T: {}}"
QUERIES = "queries: {q1: {relations: [R, S], predicates: [R.a = S.a]}}"
GOOD = f"{STREAMS}\n{QUERIES}\n"
MINUTE = 60_000_000


def parse(text: str) -> ProblemFile:
    return parse_problem(load_yaml(text))


def test_a_plain_problem() -> None:
    problem = parse(GOOD)
    (query,) = problem.queries
    assert (query.id, query.labels) == ("q1", ("R", "S"))
    assert query.predicates == (equality("R.a=S.a"),)
    assert [str(m) for m in query.classes[0].members] == ["R.a", "S.a"]
    assert query.bounds == ((0, None), (None, 0))
    assert [o.name for o in query.projection] == ["R.a", "S.a"]
    statistics = problem.statistics
    assert statistics.cardinality(RelationId("R")) == 100
    assert statistics.cardinality(RelationId("T")) is None
    assert statistics.distinct(RelationId("R"), ("a",)) is None
    assert (problem.parallelism, problem.mir, problem.partitioning) == (1, True, True)
    assert problem.objective is None


def test_a_query_is_what_the_same_sql_is() -> None:
    problem = parse(
        """
        streams:
          R: {columns: {a: long, x: double, ts: timestamp}, event_time: ts}
          S: {columns: {a: int, b: string, ts: timestamp}, event_time: ts}
        queries:
          q:
            relations: [R as r, "S as s", {stream: S, as: other, filter: b = 'x' AND a > 5}]
            predicates: [r.a = s.a, s.b = other.b, r.x > other.a, "s.ts <= r.ts"]
            window: {r: 10m, s: PT1H, other: 2 hours}
        """
    )
    streams = {str(s.name): s for s in problem.streams}
    sql = (
        "SELECT r.a AS `r.a`, r.ts AS `r.ts`, r.x AS `r.x`, s.a AS `s.a`, s.b AS `s.b`,"
        " s.ts AS `s.ts`, other.a AS `other.a`, other.b AS `other.b` FROM R AS r JOIN S AS s"
        " ON r.a = s.a AND s.ts <= r.ts JOIN S AS other ON s.b = other.b AND r.x > other.a"
        " WHERE other.a > 5 AND other.b = 'x'"
    )
    window = {"r": 10 * MINUTE, "s": 60 * MINUTE, "other": 120 * MINUTE}
    assert problem.queries == (parse_sql("q", sql, streams, window),)


@pytest.mark.parametrize(
    "problem",
    [
        natural_problem(1, relations=20, count=50, size=4),
        natural_problem(2, relations=10, count=200, size=3, attributes=6, per_relation=2),
        tree_problem(3, relations=8, count=40, size=4),
        natural_problem(4, relations=3, count=0, size=2),
    ],
    ids=["natural", "dense", "tree", "empty"],
)
def test_a_random_problem_written_down_is_the_problem(problem: RandomProblem) -> None:
    read = parse(write_yaml(problem))
    assert read.queries == join_queries(problem)
    for query in read.queries:
        for relation in query.relations:
            known = statistics_of(problem)
            assert read.statistics.cardinality(relation.id) == known.cardinality(relation.id)
            assert read.statistics.distinct(relation.id, ("a0",)) == 100.0


def test_columns_are_inferred_and_event_time_is_a_timestamp() -> None:
    problem = parse(
        """
        streams: {R: {distinct: {a: 5, unused: 2}}, S: {}}
        queries:
          q:
            relations: [R, S]
            predicates: [R.a = S.b, S.event_time >= R.event_time]
            window: 5 minutes
        """
    )
    columns = {str(s.name): [f"{c} {t}" for c, t in s.columns] for s in problem.streams}
    assert columns == {
        "R": ["event_time timestamp", "a bigint", "unused bigint"],
        "S": ["event_time timestamp", "b bigint"],
    }
    assert problem.queries[0].bounds == ((0, 5 * MINUTE), (0, 0))


def test_windows_of_the_problem_and_of_a_query() -> None:
    queries = "a: {relations: [R, S], predicates: [R.a = S.a]}, "
    queries += "b: {relations: [R, S], predicates: [R.a = S.a], window: null}, "
    queries += "c: {relations: [R, S], predicates: [R.a = S.a], window: 1 s}"
    problem = parse(f"{STREAMS}\nqueries: {{{queries}}}\nwindow: 2h\nspan: 1d")
    assert [q.bounds[0][1] for q in problem.queries] == [120 * MINUTE, None, 1_000_000]
    assert problem.statistics.span(RelationId("R")) == 24 * 60 * MINUTE


def test_distinct_counts_of_attributes_combinations_and_everything() -> None:
    problem = parse(
        "streams: {R: {rate: 100, distinct: {a: 50, 'B, a': 70}}, S: {rate: 100, distinct: 9}}\n"
        "queries: {q: {relations: [R, S], predicates: [R.a = S.a, R.b = S.b]}}"
    )
    known = problem.statistics
    assert known.distinct(RelationId("R"), ("a",)) == 50
    assert known.distinct(RelationId("R"), ("a", "b")) == 70
    assert known.distinct(RelationId("R"), ("b",)) is None
    assert known.distinct(RelationId("S"), ("a", "b")) == 9


def test_a_filter_makes_a_relation_with_a_rate_of_its_own() -> None:
    problem = parse(
        """
        streams: {R: {rate: 100, distinct: {a: 80}}, S: {rate: 100}}
        queries:
          q: {relations: [{stream: R, filter: b > 5, rate: 20}, S], predicates: [R.a = S.a]}
          p: {relations: [{stream: R, filter: "r.b > 5", as: r}, S], predicates: [r.a = S.a]}
          o: {relations: [{stream: R, filter: b > 6}, S], predicates: [R.a = S.a]}
        """
    )
    q, p, o = (query.members[0].relation for query in problem.queries)
    assert q == p != o
    known = problem.statistics
    assert (known.cardinality(q), known.distinct(q, ("a",))) == (20, 20)
    assert (known.cardinality(o), known.distinct(o, ("a",))) == (100, 80)
    assert problem.assumed == (f"cardinality of {o} = that of R",)


def test_selectivities_by_alias_by_stream_and_of_implied_predicates() -> None:
    problem = parse(
        """
        streams: {R: {}, S: {}, T: {}}
        queries:
          self: {relations: [R as x, R as y, R as z], predicates: [x.a = y.a, y.b = z.b]}
          implied: {relations: [R, S, T], predicates: [R.a = S.a, S.a = T.a]}
        selectivity: {y.a = X.A: 0.5, R.b = R.b: 0.25, T.a = R.a: 0.125, S.a = R.a: 0}
        """
    )
    assert problem.statistics.selectivities == {
        equality("R.a=R#1.a"): 0.5,
        equality("R#1.b=R#2.b"): 0.25,
        equality("R.a=T.a"): 0.125,
        equality("R.a=S.a"): 0.0,
    }


def test_what_is_said_of_an_alias_goes_before_what_is_said_of_the_stream() -> None:
    problem = parse(
        "streams: {R: {}}\n"
        "queries: {q: {relations: [R as x, R as y], predicates: [x.a = y.a]}}\n"
        "selectivity: {R.a = R.a: 0.5, x.a = y.a: 0.25}"
    )
    predicate = Equality(AttrRef(Label("R"), "a"), AttrRef(Label("R#1"), "a"))
    assert problem.statistics.selectivities == {predicate: 0.25}


def test_settings() -> None:
    problem = parse(GOOD + "parallelism: 4\nmir: false\npartitioning: false\nobjective: paper")
    assert (problem.parallelism, problem.mir, problem.partitioning) == (4, False, False)
    assert problem.objective is Objective.PAPER


def edited(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "field", "told"),
    [
        # The file itself.
        ("", "streams", "the field streams is missing"),
        ("[]", "", "expected a mapping, found []"),
        ("streams: {}", "queries", "the field queries is missing"),
        (GOOD + "selectivty: {}", "selectivty", "did you mean 'selectivity'?"),
        (STREAMS.replace("S:", "R:"), "", "the key 'R' occurs twice, the second time in line 1"),
        (GOOD + QUERIES, "", "the key 'queries' occurs twice, the second time in line 3"),
        ("a: [", "", "this is not YAML"),
        ("[" * 100_000, "", "nested too deeply"),
        ("a: \x00", "", "this is not YAML"),
        ("a: " + "9" * 5000, "", "can't be read"),
        ("a: !!python/name:os.system", "", "this is not YAML"),
        (edited("R:", "no:"), "streams", "the key False is not a text (put it in quotes)"),
        (edited("R:", "'R 1':"), "streams", "'R 1' is not a name"),
        # Streams and statistics.
        (edited("100", "-1"), "streams.R.rate", "-1 is less than 0"),
        (edited("100", ".nan"), "streams.R.rate", "nan is not a number"),
        (edited("100", "1e99"), "streams.R.rate", "1e+99 is too large"),
        (edited("100", "yes"), "streams.R.rate", "expected a number, found True"),
        (edited("rate", "rat"), "streams.R.rat", "did you mean 'rate'?"),
        (edited("100", "1, distinct: {a: -2}"), "streams.R.distinct.a", "-2 is less than 0"),
        (edited("100", "1, distinct: {'a,a': 2}"), "streams.R.distinct.a,a", "named twice"),
        (edited("100", "1, columns: [a, A]"), "streams.R.columns", "'A' occurs twice"),
        (edited("100", "1, columns: []"), "streams.R.columns", "has no columns"),
        (edited("100", "1, columns: {a: lon}"), "streams.R.columns.a", "'lon' is not supported"),
        (
            edited("100", "1, columns: [key, a], distinct: {kye: 1}"),
            "streams.R.distinct.kye",
            "did you mean 'key'?",
        ),
        (
            edited("100", "1, columns: [a], event_time: b"),
            "streams.R.event_time",
            "name a timestamp column",
        ),
        # Queries.
        (edited("[R, S]", "[R, X]"), "queries.q1.relations[1]", "there is no stream 'X'"),
        (
            edited("[R, S]", "[]"),
            "queries.q1.relations",
            "the list is empty (write at least one of relations)",
        ),
        (edited("[R, S]", "[R, R]"), "queries.q1.relations[1]", "alias 'R' occurs twice"),
        (edited("= S.a", "= X.a"), "queries.q1.predicates[0]", "there is no alias 'X'"),
        (edited("= S.a", "="), "queries.q1.predicates[0]", "there is no value after '='"),
        (edited("R.a = S.a", "5"), "queries.q1.predicates[0]", "5 is not a text"),
        (edited("[R.a = S.a]", "R.a = S.a"), "queries.q1.predicates", "expected a list"),
        (edited("[R, S]", "[R, S, T]"), "queries.q1", "cross product between {R,S} and {T}"),
        (edited("predicates", "joins"), "queries.q1.joins", "there is no such field"),
        (edited("q1", "'q 1'"), "queries", "'q 1' is not a name"),
        (
            edited("R.a = S.a", "(" * 5000 + "R.a = S.a" + ")" * 5000),
            "queries.q1.predicates[0]",
            "nested too deeply",
        ),
        (
            edited("100", "1, columns: [key]"),
            "queries.q1.predicates[0]",
            "there is no column 'a' in stream 'R'",
        ),
        (
            edited("[R, S]", "[{stream: R, rate: 5}, S]"),
            "queries.q1.relations[0].rate",
            "needs a filter",
        ),
        (
            edited("[R, S]", "[{stream: R, filter: b > 1, rate: 101}, S]"),
            "queries.q1.relations[0].rate",
            "more than the stream's 100",
        ),
        (
            edited("[R, S]", "[{stream: R, filter: S.b > 1}, S]"),
            "queries.q1.relations[0].filter",
            "the filter of 'R' reads 'S'",
        ),
        (
            edited(
                "[R, S]",
                "[{stream: R, filter: b > 1, rate: 5}, {stream: R, filter: b > 1, rate: 6, as: S}]",
            ),
            "queries.q1.relations[1].rate",
            "6 contradicts queries.q1.relations[0].rate",
        ),
        # Selectivities.
        (GOOD + "selectivity: {R.a = S.b: 0.1}", "selectivity.R.a = S.b", "did you mean 'R.a = S"),
        (GOOD + "selectivity: {R.a = S.a: 1.5}", "selectivity.R.a = S.a", "1.5 is too large"),
        (GOOD + "selectivity: {R.a = S.a: -1}", "selectivity.R.a = S.a", "-1 is less than 0"),
        (GOOD + "selectivity: {R.a: 1}", "selectivity.R.a", "not an equality of two columns"),
        (
            GOOD + "selectivity: {R.a = S.a: 0.1, S.a = R.a: 0.2}",
            "selectivity.S.a = R.a",
            "this is the predicate 'R.a = S.a' again",
        ),
        (
            edited(
                "[R.a = S.a]}}",
                "[R.a = S.a]}, q2: {relations: [R as x, S], predicates: [x.a = S.a]}}",
            )
            + "selectivity: {R.a = S.a: 0.1, x.a = S.a: 0.2}",
            "selectivity.x.a = S.a",
            "0.2 contradicts 0.1 of 'R.a = S.a'",
        ),
        # Settings.
        (GOOD + "parallelism: 0", "parallelism", "0 is less than 1"),
        (GOOD + "mir: 1", "mir", "expected true or false, found 1"),
        (GOOD + "objective: cheap", "objective", "use 'seconds', 'tuples' or 'paper'"),
        (GOOD + "window: 5", "window", "5 is not a duration"),
        (GOOD + "window: -1 minute", "window", "the duration is negative"),
        (GOOD + "window: 5 fortnights", "window", "fortnights"),
        (GOOD + "span: [1h]", "span", "['1h'] is not a duration"),
        (GOOD + "parallelism: true", "parallelism", "True is not a whole number"),
        (GOOD + "limits: {memory: true}", "limits.memory", "expected a number, found True"),
        (GOOD + "selectivity: [0.5]", "selectivity", "expected a mapping, found [0.5]"),
        (GOOD + "costs: {yes: 1}", "costs", "the key True is not a text"),
        (edited("100", "1, values: {a: 5}"), "streams.R.values.a", "expected a mapping, found 5"),
        (edited("100", "1, values: {a: {x: 2}}"), "streams.R.values.a", "more than the stream's 1"),
        (edited("100", "1, values: {b: {x: 1}}"), "streams.R.values.b", "known: a, event_time"),
        (edited("100", "1, distinct: true"), "streams.R.distinct", "expected a number, found True"),
        (edited("100", "1, columns: 5"), "streams.R.columns", "expected a list, found 5"),
        (edited("100", "1, columns: {a: 5}"), "streams.R.columns.a", "5 is not a text"),
        (edited("100", "1, event_time: a b"), "streams.R.event_time", "'a b' is not a name"),
        (edited("100", "1, retention: 5"), "streams.R.retention", "expected a mapping, found 5"),
        (edited("100", "1, retention: {ttl: 5}"), "streams.R.retention.ttl", "5 is not a duration"),
        (edited("[R, S]", "[R, {as: s}]"), "queries.q1.relations[1].stream", "is missing"),
        (edited("[R, S]", "[R, 'S as 5']"), "queries.q1.relations[1].as", "'5' is not a name"),
        (edited("[R, S]", "[R, S], window: {R: 5}"), "queries.q1.window.R", "5 is not a duration"),
        (edited("[R, S]", "[R, S], window: {X: 1m}"), "queries.q1.window.X", "not an alias"),
        (edited("100", "1, columns: [a]") + "window: 1m", "queries.q1.window", "needs event times"),
    ],
)
def test_what_cannot_be_used(text: str, field: str, told: str) -> None:
    with pytest.raises(ProblemError) as caught:
        parse(text)
    assert caught.value.field == field
    assert told in str(caught.value)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "R", "S", "a", "R.a = S.a", "R as r", "1h", "long", "[key]", "\ud800"])
)
WORDS = st.sampled_from(
    ["R", "S", "a", "rate", "distinct", "columns", "values", "retention", "ttl", "relations",
     "predicates", "window", "stream", "as", "filter", "memory", "[key]", "(each)", "\ud800"]
) | st.integers()  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["streams", "queries", "selectivity", "span", "window", "costs", "limits", "from",
             "select", "join", "where"]
        ),
        VALUES,
    )
)  # fmt: skip
def test_any_document_is_read_or_refused_with_a_remedy(document: dict[str, Any]) -> None:
    whole: dict[str, Any] = {"streams": {"R": {}, "S": {}}, "queries": {}}
    found = [
        *(error(parse_problem, one) for one in (document, whole | document)),
        error(parse_problem, {"streams": {"R": document}, "queries": {}}),
        error(read_document, document),
    ]
    assert all(one is None or (one.detail and one.remedy) for one in found)


def error(parse: Callable[[Any], object], document: object) -> PlannerError | None:
    try:
        parse(document)
    except PlannerError as cause:
        return cause
    return None


def test_the_file_in_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs" / "planner.md").read_text(encoding="utf-8")
    problem = parse(text.partition("```yaml\n")[2].partition("```")[0])
    (query,) = problem.queries
    assert [m.alias for m in query.members] == ["R", "s", "t"]
    assert problem.statistics.cardinality(query.members[2].relation) == 40
    assert list(problem.statistics.selectivities.values()) == [0.015]


def test_cost_constants() -> None:
    found = parse(GOOD + "\nobjective: seconds\ncosts: {match: 3e-7, calls: 4}\n").statistics
    assert found.constants == CostConstants(match=3e-7, calls=4.0)
    assert parse(GOOD).statistics.constants is None


def test_limits_and_widths() -> None:
    problem = parse(
        "streams: {R: {width: 40}, S: {rate: 5}}\n"
        "queries: {q: {relations: [{stream: R, filter: a > 1}, S], predicates: [R.a = S.a]}}\n"
        "limits: {memory: 1e9, copies: 2}\n"
    )
    assert (problem.limits.memory, problem.limits.copies) == (1e9, 2)
    (filtered,) = [r.id for r in problem.queries[0].relations if r.stream == "R"]
    assert filtered != "R"
    assert problem.limits.widths == {filtered: 40.0}
    free = parse(GOOD).limits
    assert (free.memory, free.copies, free.widths) == (None, None, {})


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("costs: 5", "costs"),
        ("costs: {metch: 5}", "costs.metch"),
        ("costs: {match: -1}", "costs.match"),
        ("costs: {match: .nan}", "costs.match"),
        ("limits: 5", "limits"),
        ("limits: {memry: 5}", "limits.memry"),
        ("limits: {memory: -1}", "limits.memory"),
        ("limits: {memory: .inf}", "limits.memory"),
        ("limits: {memory: lots}", "limits.memory"),
        ("limits: {copies: 0}", "limits.copies"),
        ("limits: {copies: 1.5}", "limits.copies"),
    ],
)
def test_limits_that_make_no_sense(line: str, field: str) -> None:
    with pytest.raises(ProblemError) as caught:
        parse(f"{GOOD}{line}\n")
    assert caught.value.field == field
    assert caught.value.remedy


@pytest.mark.parametrize("width", ["0", "-3", "wide", "true", ".nan"])
def test_widths_that_make_no_sense(width: str) -> None:
    with pytest.raises(ProblemError) as caught:
        parse(GOOD.replace("T: {}", f"T: {{width: {width}}}"))
    assert caught.value.field == "streams.T.width"
