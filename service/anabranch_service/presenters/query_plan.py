"""One query's part of the running plan: its probe paths, its stores, and its share of the cost.

The cost of a probe or store is split equally among the registered queries that depend on it, so the
shares of all queries add up to the plan's cost. A query depends on an intermediate result if one of
its paths probes it, or probes another one that is built from it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch_contract.plans.ruleset import Edge, ProbeRule, Ruleset, arrival_edge
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.protocol.state_report import StateReport, StoreReport, TableReport
from anabranch_contract.queries.joins import QueryId
from anabranch_contract.queries.outer_joins import part_number, registered
from anabranch_contract.rest.normalised import NormalisedInfo
from anabranch_contract.rest.planning.insight import TablesRecord
from anabranch_contract.rest.planning.query_plan import (
    DividedOut,
    MaintainedTableOut,
    PathStepOut,
    ProbePathOut,
    QueryPlanOut,
    UsedStoreOut,
)
from anabranch_planner.plans.compiling.rules import path_to
from anabranch_service.presenters.names import Describer

#: Kinds of rejected tuples, and the description of a relation without a filter.
_REJECTED = ("late", "invalid", "ahead")
_ALL = "all tuples"


@dataclass(frozen=True, slots=True)
class MeasuredFlows:
    """Measured traffic and CPU time of the plan in the newest periods.

    Attributes:
        flows: edge -> tuples per second, and CPU seconds per second of the step that emits them.
        result_seconds: CPU seconds per result. ``cpu``: CPU seconds per second of the whole plan.
        measured: whether any step was measured.
        kept: join -> its results as a share of the tuples on its output edges; missing: all.
    """

    flows: Mapping[Edge, tuple[float, float]]
    result_seconds: float
    cpu: float
    measured: bool
    kept: Mapping[QueryId, float] = field(default_factory=dict)

    def results(self, ruleset: Ruleset) -> dict[str, float]:
        """Return the results per second of each registered query."""
        rates: dict[str, float] = defaultdict(float)
        for output in ruleset.output_rules:
            tuples, _ = self.flows[output.edge]
            rates[registered(output.query)] += tuples * self.kept.get(output.query, 1.0)
        return rates


@dataclass(frozen=True, slots=True)
class _End:
    """End of a probe path, which produces results of ``query`` or rows of the store ``mir``."""

    edge: Edge
    query: str | None
    mir: str | None
    left: bool = False


@dataclass(frozen=True, slots=True)
class TableCosts:
    """Measured costs of all maintained tables.

    The runtime reports work for several queries already divided equally among them.

    Attributes:
        state: the newest report. ``rates``: query -> joined rows per second.
        estimated: prices of the tables at planning; None: not computed.
    """

    state: StateReport | None
    rates: Mapping[str, float]
    estimated: TablesRecord | None

    @property
    def cpu(self) -> float:
        """CPU seconds per second of all tables."""
        return 0.0 if self.state is None else sum(map(self._cpu, self.state.tables))

    def of(self, query: str) -> MaintainedTableOut | None:
        """Return the table of ``query``, which may not have rows yet; None if it has no table."""
        some = next((s for s in self._common().values() if query in s), {})
        estimated = None if self.estimated is None else self.estimated.of_query(query)
        if not some and estimated is None:
            return None
        own = some.get(query, TableReport(query, 0, -1, 0, 0))
        return MaintainedTableOut(
            estimated=estimated,
            share=None if estimated is None else estimated.share_of(query),
            rows=own.rows,
            bytes=own.bytes or None,
            cpu=self._cpu(own),
            cpu_of_table=sum(map(self._cpu, some.values())),
            shared=sorted(some.keys() - {query}),
        )

    def _common(self) -> dict[str, dict[str, TableReport]]:
        """Map the first query of each table to the reports of all queries with the table."""
        found: dict[str, dict[str, TableReport]] = {}
        for table in () if self.state is None else self.state.tables:
            found.setdefault(table.common or table.query, {})[table.query] = table
        return found

    def _cpu(self, table: TableReport) -> float:
        """Return the CPU seconds per second of one query, from its mean per joined row so far."""
        rate = self.rates.get(table.query, 0.0)
        return table.seconds / table.added * rate if table.added else 0.0


def query_plan_out(
    ruleset: Ruleset,
    name: str,
    meanings: Mapping[str, NormalisedInfo],
    found: MeasuredFlows,
    state: StateReport | None,
    progress: Progress | None,
    substreams: Sequence[Mapping[str, Any]] = (),
    tables: TablesRecord | None = None,
) -> QueryPlanOut:
    """Return the part of ``ruleset`` that the registered query ``name`` needs.

    Args:
        meanings: query -> its normal form, for user-facing names.
        substreams: the substreams of the epoch's plan (``explain.substreams`` of the planner).
        tables: the estimated costs of the epoch's maintained tables, if computed.
    """
    rule_of = {rule.out: rule for rule in ruleset.probe_rules}
    ends = _path_ends(ruleset)
    paths = {end: path_to(rule_of, end.edge) for end in ends}
    users = _users(paths)
    behind: dict[Edge, set[str]] = defaultdict(set)
    for end, path in paths.items():
        queries = {end.query} if end.query is not None else users.get(end.mir or "", set())
        for rule in path:
            behind[rule.out] |= queries
    own = [end for end in ends if end.query == name]
    # Paths that maintain intermediate results which the query probes directly or indirectly.
    kept = [end for end in ends if end.mir is not None and name in users.get(end.mir, ())]
    describe = Describer(ruleset, meanings)
    aliases = {a.label: a.alias for a in meanings[name].aliases}
    takers = ruleset.takers
    steps = {rule.out for end in (*own, *kept) for rule in paths[end]}
    rates = found.results(ruleset)
    results, costs = rates.get(name, 0.0), TableCosts(state, rates, tables)
    table = costs.of(name)
    stores = _stores(state, name)
    streams = {a.stream for a in meanings[name].aliases}
    known = {} if progress is None else progress.input.intake
    intake = [one for stream, one in known.items() if stream in streams]
    shown = [
        _path_out(end, paths[end], ruleset, describe, aliases, behind, found.flows, name, takers)
        for end in (*own, *kept)
    ]
    emitted = None if progress is None else progress.results.get(name)
    reasons = no_results_because(meanings[name], shown, progress, measured=found.measured)
    return QueryPlanOut(
        epoch=ruleset.epoch,
        revision=ruleset.revision,
        measured=found.measured,
        paths=shown,
        no_results_because=reasons if not results or emitted == 0 else [],
        divided=_divided(ruleset, substreams, aliases),
        results_per_second=results,
        cpu=sum(found.flows[out][1] / len(behind[out]) for out in sorted(steps))
        + results * found.result_seconds
        + (0.0 if table is None else table.cpu),
        cpu_of_plan=found.cpu + costs.cpu,
        state_bytes=sum(s.bytes / len(_readers(s)) for s in stores),
        state_of_plan=0 if state is None else sum(s.bytes for s in state.stores),
        stores=[_store_out(store, describe) for store in stores],
        waiting_tuples=sum(i.waiting for i in intake) if intake else None,
        waiting_seconds=max((i.seconds or 0.0 for i in intake), default=None),
        batch_seconds=0.0 if progress is None else progress.resources.batch_seconds,
        table=table,
    )


def _path_ends(ruleset: Ruleset) -> list[_End]:
    mirs = {s.id: str(s.mir) for s in ruleset.stores if len(s.members) > 1}
    made = [
        _End(edge, None, mir)
        for edge, mir in sorted(
            {(r.edge, mirs[r.store]) for r in ruleset.store_rules if r.store in mirs}
        )
    ]
    given = [
        _End(o.edge, registered(o.query), None, left=part_number(o.query) == 0)
        for o in ruleset.output_rules
    ]
    return [*given, *made]


def _users(paths: Mapping[_End, list[ProbeRule]]) -> dict[str, set[str]]:
    """Map each intermediate result to the queries that directly or indirectly depend on it."""
    found: dict[str, set[str]] = defaultdict(set)
    for end, path in paths.items():
        if end.query is not None:
            for rule in path:
                found[str(rule.mir)].add(end.query)
    grown = True
    while grown:
        grown = False
        for end, path in paths.items():
            if end.mir is None:
                continue
            for rule in path:
                before = len(found[str(rule.mir)])
                found[str(rule.mir)] |= found[end.mir]
                grown |= len(found[str(rule.mir)]) > before
    return found


def _path_out(
    end: _End,
    path: list[ProbeRule],
    ruleset: Ruleset,
    describe: Describer,
    aliases: Mapping[str, str],
    behind: Mapping[Edge, set[str]],
    flows: Mapping[Edge, tuple[float, float]],
    name: str,
    takers: Mapping[Edge, tuple[int, ...]],
) -> ProbePathOut:
    edge = path[-1].edge if path else end.edge
    relation = next(r for r in ruleset.relations if arrival_edge(r.id) == edge)
    label, detail = describe.of("relation", str(relation.id))
    # The label may belong to another query with equal joins, and have no alias in this query.
    alias = aliases.get(str(path[-1].start), "") if path else ""
    mirs = {str(s.mir) for s in ruleset.stores if len(s.members) > 1}
    return ProbePathOut(
        alias=alias,
        label=label,
        detail=detail,
        tuples_per_second=flows[edge][0],
        steps=[
            _step_out(rule, describe, aliases, behind, flows, name, mirs) for rule in reversed(path)
        ],
        keeps=None if end.mir is None else describe.of("result", end.mir)[0],
        left=end.left,
        substreams=list(takers.get(end.edge, ())),
    )


def _divided(
    ruleset: Ruleset, explained: Sequence[Mapping[str, Any]], aliases: Mapping[str, str]
) -> list[DividedOut]:
    """Return the explained substreams of ``aliases`` that still exist in the running ruleset, which
    may be a revision of the explained one."""
    running = {(str(one.start), one.attribute, one.count) for one in ruleset.substreams}
    return [
        DividedOut(
            alias=aliases[one["start"]], attribute=one["attribute"], substreams=one["substreams"]
        )
        for one in explained
        if one["start"] in aliases
        and (one["start"], one["attribute"], len(one["substreams"])) in running
    ]


def _step_out(
    rule: ProbeRule,
    describe: Describer,
    aliases: Mapping[str, str],
    behind: Mapping[Edge, set[str]],
    flows: Mapping[Edge, tuple[float, float]],
    name: str,
    mirs: Collection[str],
) -> PathStepOut:
    def named(mir: str) -> tuple[str, str]:
        return describe.of("result" if mir in mirs else "relation", mir)

    label, detail = named(str(rule.mir))
    tuples, seconds = flows[rule.out]
    return PathStepOut(
        label=label,
        detail=detail,
        aliases=[aliases[str(m)] for m in rule.members if str(m) in aliases],
        kept=str(rule.mir) in mirs,
        tuples_per_second=tuples,
        cpu=seconds,
        shared=sorted(behind[rule.out] - {name}),
        asks=[named(str(one.mir))[0] for one in rule.ahead],
    )


def _readers(store: StoreReport) -> frozenset[str]:
    """Return the registered queries whose results depend on ``store``."""
    return frozenset(map(registered, store.queries))


def _stores(state: StateReport | None, name: str) -> list[StoreReport]:
    """Return the stores that query ``name`` depends on, the largest share of bytes first."""
    if state is None:
        return []
    found = [store for store in state.stores if name in _readers(store)]
    return sorted(found, key=lambda s: (-s.bytes / len(_readers(s)), s.store))


def _store_out(store: StoreReport, describe: Describer) -> UsedStoreOut:
    label, detail = describe.of("result" if len(store.members) > 1 else "relation", store.mir)
    return UsedStoreOut(
        store=store.store,
        label=label or " ⋈ ".join(store.streams),
        detail=detail,
        rows=store.rows,
        bytes=store.bytes,
        queries=len(_readers(store)),
    )


def no_results_because(
    meaning: NormalisedInfo,
    paths: Sequence[ProbePathOut],
    progress: Progress | None,
    *,
    measured: bool,
) -> list[str]:
    """Return the reasons as sentences: streams without rows or, if all have some, where the rows of
    each alias have ended in the newest periods; empty if neither is known.

    Args:
        paths: the query's probe paths, as measured without any result.
        measured: whether a step has been measured.
    """
    counts = {} if progress is None else progress.streams
    streams = {alias.stream: counts.get(alias.stream, {}) for alias in meaning.aliases}
    found = [text for name, one in streams.items() if (text := _unread(name, one))]
    return found or (list(_ends(meaning, paths)) if measured else [])


def _unread(stream: str, counts: Mapping[str, int]) -> str | None:
    read, rejected = counts.get("input", 0), sum(counts.get(name, 0) for name in _REJECTED)
    if not read:
        return f"no row of {stream} has been read"
    if rejected >= read:
        return f"all {read} rows of {stream} were rejected, as late, invalid or ahead"
    return None


def _ends(meaning: NormalisedInfo, paths: Sequence[ProbePathOut]) -> Iterator[str]:
    """Sentences about the step at which the rows of each alias end."""
    streams = {alias.alias: alias.stream for alias in meaning.aliases}
    for path in paths:
        if path.keeps is not None or path.left or path.alias not in streams:
            continue
        named = f"{streams[path.alias]} ({path.alias})"
        if not path.tuples_per_second:
            if path.detail != _ALL:
                yield f"no row of {named} {path.detail} has been read lately"
            continue
        passed: list[str] = []
        for step in path.steps:
            if not step.tuples_per_second:
                where = "" if step.detail == _ALL else f" {step.detail}"
                before = f" that match {' and '.join(passed)}" if passed else ""
                yield f"rows of {named}{before} match no row of {step.label}{where}"
                break
            passed.append(step.label)
        else:
            # Without such a condition the rates are those assumed of steps not measured yet.
            if meaning.residuals:
                yield f"rows of {named} match, but fail {' AND '.join(meaning.residuals)}"
