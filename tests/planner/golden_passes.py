"""The value after every planning pass as text, for queries of TPC-H.

``python -m tests.planner.golden_passes`` renews ``golden/passes``; review it as a diff, like code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from anabranch_contract.plans.plan import Backfilling
from anabranch_contract.plans.ruleset import FillStep, KeyPart, Ruleset, TimeBound
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.explain.explain import explain_text
from anabranch_planner.logical.nodes import to_text
from anabranch_planner.passes import (
    EpochRequest,
    convert_query,
    make_rules,
    optimise,
    parse_sql,
)
from anabranch_planner.plans.optimise import Options, PlanRequest, build
from anabranch_planner.search.bounds.reduce import drop_unprofitable
from anabranch_planner.search.problem import PlanProblem
from benchmarks.papers.tsc.catalogs import parse_catalog, text_of

HERE = Path(__file__).parent / "golden"
STATEMENTS = {p.stem: p.read_text("utf-8") for p in sorted((HERE / "tpch").glob("*.sql"))}
CATALOG = parse_catalog(text_of("tpch"))
HOUR = 3_600_000_000
#: Number of rows at scale 0.01.
ROWS = {
    "customer": 1500, "lineitem": 60000, "nation": 25, "orders": 15000, "part": 2000,
    "partsupp": 8000, "region": 5, "supplier": 100,
}  # fmt: skip
#: Tables with an event time.
TIMED = {"customer": "c_ts", "orders": "o_ts"}
#: A filter keeps one of so many rows.
FILTERED = 5


def streams() -> dict[str, Stream]:
    """Return the tables of TPC-H as streams."""
    found = {}
    for name, columns in CATALOG.items():
        ts = TIMED.get(name)
        kinds = {**columns, **({} if ts is None else {ts: "timestamp"})}
        typed = tuple((c, parse_type(kind)) for c, kind in kinds.items())
        found[name] = Stream(StreamName(name), typed, ts, None if ts is None else HOUR)
    return found


def statistics(queries: Iterable[JoinQuery]) -> Statistics:
    """Return statistics: cardinalities by table and filter; keys are distinct."""
    rows = {
        r.id: ROWS[r.stream] / (FILTERED if r.filter else 1) for q in queries for r in q.relations
    }
    return Statistics(cardinalities=rows, every_distinct=rows)


def query_text(query: JoinQuery) -> str:
    """Return the text of a normalised query."""
    lines = [f"query {query.id}"]
    for member in query.members:
        relation = query.relation_of(member.label)
        lines.append(f"  {member.alias}: {member.label} of {relation.stream}")
        lines += [f"    where {e}" for e in relation.filter]
    lines += [f"  class {c.type}: {' = '.join(map(str, c.members))}" for c in query.classes]
    lines += [
        f"  time {query.labels[j]} - {query.labels[i]} <= {bound} us"
        for i, row in enumerate(query.bounds)
        for j, bound in enumerate(row)
        if i != j and bound is not None
    ]
    lines += [f"  residual {e}" for e in query.residuals]
    lines += [f"  derived {stream}.{text}" for stream, text, _ in query.derived]
    lines += [f"  select {o.name}: {o.expr.type} = {o.expr}" for o in query.projection]
    if query.view is not None:
        view = query.view
        lines.append("  view")
        lines += [f"    key {name}: {kind}" for name, kind in view.keys]
        lines += [
            f"    {a.name}: {a.type} = {a.function}({'distinct ' * a.distinct}{a.column or '*'})"
            for a in view.aggregates
        ]
        lines += [
            f"    {t.name}: {t.type} = total {t.function}({t.aggregate})" for t in view.totals
        ]
        lines += [f"    having {view.having}"] if view.having is not None else []
        lines += [f"    order by {s.expr}{' desc' * s.descending}" for s in view.order]
        lines += [f"    limit {view.limit}"] if view.limit is not None else []
        lines += [f"    select {o.name} = {o.expr}" for o in view.projection]
    if query.outer is not None:
        outer = query.outer
        lines.append(f"  {outer.kind} join with {outer.partner}")
        lines += [f"    left {name}: {kind}" for name, kind in outer.left]
        lines += [f"    partners until {name} + {micros} us" for name, micros in outer.times]
        lines += [f"    select {o.name} = {o.expr}" for o in outer.projection]
    if query.left is not None:
        lines.append(query_text(query.left).rstrip())
    return "\n".join(lines) + "\n"


def problem_text(problem: PlanProblem) -> str:
    """Return the text of a planning problem: goals with the sizes of their graphs, stores with
    their choices.
    """
    graph = problem.graph
    lines = [f"{len(problem.goals)} goals, {problem.flows} flows, {problem.candidates} orders"]
    for goal in problem.goals:
        kind = "keep" if goal.maintains else "answer"
        lines.append(f"{kind} {goal.name} from {goal.start}: {len(goal.edges)} steps")
    for store in (*problem.required, *problem.mirs):
        attributes = ", ".join(map(str, problem.partitions[store])) or "-"
        lines.append(
            f"store {graph.mir(store).id}: inserts {problem.inserts[store]:.6g}, by {attributes}"
        )
    return "\n".join(lines) + "\n"


def ruleset_text(ruleset: Ruleset) -> str:
    """Return the text of a ruleset: its rules in order of levels and edges."""
    lines = [f"epoch {ruleset.epoch}"]
    for store in ruleset.stores:
        lines.append(f"store {store.id}")
        lines += [f"  keeps {label}.{column}" for label, column in store.columns]
        lines += [f"  within {_bounds(store.bounds)}"] if store.bounds else []
        lines += [
            "  index " + ", ".join(f"{ref}:{kind}" for ref, kind in index)
            for index in store.indexes
        ]
    lines += [f"on {rule.edge}: insert into {rule.store}" for rule in ruleset.store_rules]
    for probe in ruleset.probe_rules:
        lines.append(f"on {probe.edge}, level {probe.level}: probe {probe.store}")
        lines.append(f"  as {', '.join(probe.members)} by {_keys(probe.key)}")
        lines += [f"  inclusive {', '.join(probe.inclusive)}"] if probe.inclusive else []
        lines += [f"  within {_bounds(probe.bounds)}"] if probe.bounds else []
        lines += [f"  if {e}" for e in probe.residuals]
        lines += [f"  fill {_fill(step)}" for step in probe.fill]
        lines.append(f"  to {probe.out}")
    for output in ruleset.output_rules:
        lines.append(f"on {output.edge}: output {output.query}")
        lines += [f"  if {e}" for e in output.residuals]
        lines += [f"  within {_bounds(output.bounds)}"] if output.bounds else []
    for rule in ruleset.backfill_rules:
        lines.append(f"backfill {rule.store} from {rule.start}")
        lines += [f"  fill {_fill(step)}" for step in rule.steps]
    for relation, parts in ruleset.sketches:
        lines.append(f"count {relation}: " + ", ".join(f"{name}:{kind}" for name, kind in parts))
    return "\n".join(lines) + "\n"


def _keys(key: Sequence[KeyPart]) -> str:
    return ", ".join(f"{part.probe} = {part.build}:{part.type}" for part in key)


def _bounds(bounds: Sequence[TimeBound]) -> str:
    return ", ".join(f"{b.later} - {b.earlier} <= {b.micros} us" for b in bounds)


def _fill(step: FillStep) -> str:
    return f"{step.label} from {step.store} by {_keys(step.key)}"


def written() -> Iterator[tuple[str, str]]:
    """File names and texts: one file per statement and pass, and the passes over all of them."""
    tables = streams()
    queries: list[JoinQuery] = []
    for name, sql in STATEMENTS.items():
        query = parse_sql(name, sql, tables)
        before, after = convert_query(query, tables)
        queries += query.planned
        yield f"{name}.1-query.txt", query_text(query)
        yield f"{name}.2-binary-joins.txt", to_text(before) + "\n"
        yield f"{name}.3-multi-way-joins.txt", to_text(after) + "\n"
    known = statistics(queries)
    options = Options(parallelism=4)
    problem = build(queries, PlanRequest(tuple(queries), known, options))
    plan = optimise(queries, known, options)
    request = EpochRequest(
        queries=queries,
        streams=[tables[n] for n in sorted(tables)],
        statistics=known,
        epoch=1,
        parallelism=options.parallelism,
        sinks={},
        backfilling=Backfilling.ALWAYS,
    )
    yield "all.1-problem.txt", problem_text(problem)
    yield "all.2-reduced.txt", problem_text(drop_unprofitable(problem))
    yield "all.3-plan.txt", explain_text(plan, queries)
    yield "all.4-ruleset.txt", ruleset_text(make_rules(plan, request).ruleset)


def main() -> None:
    """Rewrite the golden files in ``golden/passes``."""
    folder = HERE / "passes"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.txt"):
        old.unlink()
    for name, text in written():
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
