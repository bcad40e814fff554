"""Run ``anabranch replay`` on a scenario, and compare results and report with the oracle."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import sqlglot
from sqlglot import exp

from anabranch_contract.protocol.activations import Activation
from tests.support.oracles.oracle import Oracle, OracleQuery, Withheld, from_spark
from tests.support.scenarios.file import Scenario, activation_in, called, read_report, read_scenario

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("planner", "service", "runtime", "client")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a replay's check; ``problems`` is empty if the replay is right."""

    queries: int
    results: int
    problems: tuple[str, ...]

    def __str__(self) -> str:
        what = f"{self.queries} queries, {self.results} results"
        return "\n    ".join((f"{'FAIL' if self.problems else 'ok'}: {what}", *self.problems))


def replay(scenario: Path, out: Path, *, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """Replay ``scenario`` into ``out`` with the real service and the real Spark pipeline."""
    paths = [str(ROOT / room) for room in ROOMS]
    inherited = os.environ.get("PYTHONPATH")
    command = [sys.executable, "-m", "anabranch_client", "replay", str(scenario)]
    return subprocess.run(
        [*command, "--out", str(out), "--json"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*paths, *([inherited or ""])])},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def replay_and_check(
    scenario: Path, out: Path, queries: Mapping[str, OracleQuery] | None = None
) -> tuple[Verdict, float]:
    """Replay a scenario without refused queries; return the verdict and the replay's seconds."""
    started = time.monotonic()
    done = replay(scenario, out)
    seconds = time.monotonic() - started
    if done.returncode != 0:
        tail = "\n".join((done.stdout[-1500:] + done.stderr[-4000:]).splitlines()[-40:])
        return Verdict(0, 0, (f"exit code {done.returncode}: {tail}",)), seconds
    return check(scenario, out, queries), seconds


def check(
    path: Path,
    out: Path,
    queries: Mapping[str, OracleQuery] | None = None,
    withheld: Sequence[Withheld] = (),
) -> Verdict:
    """Check a replay's results and report in ``out`` against the oracle.

    Args:
        path: the scenario file.
        queries: the queries as the generator made them; without it their SQL is transpiled.
        withheld: what probes did not get, and was not made good.
    """
    scenario, report = read_scenario(path), read_report(out)
    said = {n: activation_in(report, n) for n in report["queries"] if n in scenario.queries}
    oracle = Oracle(scenario, withheld=withheld)
    try:
        if queries is None:
            columns = oracle.columns()
            queries = {name: from_spark(q.sql, columns) for name, q in scenario.queries.items()}
        spans = {name: scenario.span(name, oracle.batches()) for name in queries}
        run = Run(scenario, queries, spans, said, out / "results")
        problems = [p for name in queries for p in _report(name, report)]
        verdict = check_run(oracle, run, report)
    finally:
        oracle.close()
    return replace(verdict, problems=(*problems, *verdict.problems))


def _report(name: str, report: Mapping[str, Any]) -> list[str]:
    said = report["queries"].get(name)
    if said is None:
        return [f"{name}: not in the report"]
    if said.get("error"):
        return [f"{name}: status {said['status']}: {said['error']}"]
    return []


@dataclass(frozen=True, slots=True)
class Run:
    """A pipeline run to be checked.

    Attributes:
        spans: query -> the batches in which it must be active (``Scenario.span``).
        activations: what the run says of each query; None or missing where it never was active.
        results: the folder with a folder of Parquet files for each query.
        begins: query -> the first batches that its activations must have; None: not checked.
    """

    scenario: Scenario
    queries: Mapping[str, OracleQuery]
    spans: Mapping[str, tuple[int | None, int | None]]
    activations: Mapping[str, Activation | None]
    results: Path
    begins: Mapping[str, Sequence[int]] | None = None


def check_run(oracle: Oracle, run: Run, totals: Mapping[str, Any]) -> Verdict:
    """Check a run against the oracle; ``totals`` are the report's counts over all streams."""
    run = replace(run, activations={n: _called(a) for n, a in run.activations.items()})
    oracle.observe(run.queries, run.activations)
    problems = _totals(oracle, run.scenario, totals)
    results = 0
    for name in run.queries:
        found, written = _query(oracle, run, name)
        problems += [f"{name}: {p}" for p in found]
        results += written
    problems += _visibility(run)
    return Verdict(len(run.queries), results, tuple(problems))


def _totals(oracle: Oracle, scenario: Scenario, report: Mapping[str, Any]) -> list[str]:
    counts = {name: oracle.counts(name) for name in scenario.streams}
    expected = {
        "batches": oracle.batches(),
        "input_tuples": sum(c.rows for c in counts.values()),
        "late_tuples": {n: c.late for n, c in counts.items()},
        "invalid_tuples": {n: c.invalid for n, c in counts.items()},
        "ahead_tuples": {n: c.ahead for n, c in counts.items()},
    }
    return [
        f"{field} is {report.get(field)}, not {value}"
        for field, value in expected.items()
        if report.get(field) != value
    ]


def _query(oracle: Oracle, run: Run, name: str) -> tuple[list[str], int]:
    """Return the problems of a query's results, and their number."""
    problems = []
    begins, ends = run.spans[name]
    activation = run.activations.get(name)
    lives = lives_of(activation)
    began, ended = (lives[0].activated_batch, lives[-1].expired_batch) if lives else (None, None)
    if began != begins:
        problems.append(f"activated at batch {began}, not {begins}")
    if begins is not None and ended != ends:
        problems.append(f"expired at batch {ended}, not {ends}")
    firsts = [life.activated_batch for life in lives]
    if run.begins is not None and firsts != list(run.begins[name]):
        problems.append(f"activated at batches {firsts}, not {run.begins[name]}")
    if [life.expired_batch for life in lives[:-1]] != firsts[1:]:
        problems.append(f"no activation begins where another ends: {lives}")
    for life in lives:
        problems += _sane(run.scenario, run.queries[name], life)
        streams = dict(run.queries[name].members)
        for alias, missed in life.missed.items():
            before = life.visible_from[alias].batch
            if missed != oracle.admitted(streams[alias], before):
                problems.append(f"{alias} misses {missed} rows, it says")
        if life.complete == "always" and life.missed:
            problems.append(f"complete, and misses {life.missed}")
    entry, results = run.scenario.queries[name], run.results / name
    if activation is None and not results.exists():
        return problems, 0
    comparison = oracle.compare(run.queries[name], entry, activation, results)
    problems += comparison.problems
    if activation is not None and activation.results != comparison.got:
        problems.append(f"{activation.results} results reported, {comparison.got} written")
    return problems, comparison.got


def _called(activation: Activation | None) -> Activation | None:
    """Return ``activation`` with the oracle's names of aliases."""
    if activation is None:
        return None
    return replace(
        activation,
        visible_from={called(path): seen for path, seen in activation.visible_from.items()},
        missed={called(path): count for path, count in activation.missed.items()},
        earlier=tuple(filter(None, map(_called, activation.earlier))),
    )


def lives_of(activation: Activation | None) -> tuple[Activation, ...]:
    """Return all activations of a query, oldest first."""
    return () if activation is None else (*activation.earlier, activation)


def _sane(scenario: Scenario, query: OracleQuery, activation: Activation) -> list[str]:
    problems = []
    if set(activation.visible_from) != {a for a, _ in query.members}:
        problems.append(f"visible_from names {sorted(activation.visible_from)}")
    for alias, stream in query.members:
        start = activation.visible_from.get(alias)
        if start is None:
            continue
        if start.batch > activation.activated_batch:
            problems.append(f"{alias} is visible from {start}, after the activation")
        if start.event_time is not None and scenario.streams[stream].event_time is None:
            problems.append(f"{alias} is visible from {start}, but has no event time")
    return problems


def _visibility(run: Run) -> list[str]:
    """Check visibility: a query must see all tuples that others have stored since batch 0."""
    queries, active = run.queries, run.activations
    problems = []
    for name, activation in (
        (name, life) for name, last in active.items() for life in lives_of(last)
    ):
        begins = activation.activated_batch
        if begins == 0:
            continue
        retained = [s for _, s in queries[name].members if run.scenario.streams[s].retain is None]
        if len(retained) == len(queries[name].members) and not any(
            _forgets(run.scenario, s) for s in retained
        ):
            problems += [f"{name}: complete {activation.complete}"] * (
                activation.complete != "always"
            )
        for alias, stream in queries[name].members:
            retain = run.scenario.streams[stream].retain
            start = activation.visible_from.get(alias)
            if retain != 0 and start is not None and not _forgets(run.scenario, stream):
                if start.batch:
                    problems.append(f"{name}: {alias} is visible from batch {start.batch}")
                if retain is None and start.event_time is not None:
                    problems.append(f"{name}: {alias} is visible from {start.event_time}")
            if alias in filtered(queries[name]) or alias not in activation.visible_from:
                continue
            if _forgets(run.scenario, stream):
                continue
            holders = [
                other
                for other, span in active.items()
                if span is not None
                and lives_of(span)[0].activated_batch == 0
                and (span.expired_batch is None or span.expired_batch > begins)
                # A query over one relation stores no tuples.
                and sum(not run.scenario.streams[s].table for _, s in queries[other].members) > 1
                and any(s == stream and a not in filtered(queries[other])
                        for a, s in queries[other].members)
            ]  # fmt: skip
            start = activation.visible_from[alias]
            if holders and start.batch != 0:
                problems.append(
                    f"{name}: {alias} is visible from batch {start.batch}, though {holders[0]} has "
                    f"had all of {stream} stored since batch 0"
                )
            for_ever = [h for h in holders if _keeps_all(run.scenario, h, queries[h])]
            if for_ever and start.event_time is not None:
                problems.append(
                    f"{name}: {alias} is visible from {start.event_time} only, though "
                    f"{for_ever[0]} has no time bound"
                )
    return problems


def _forgets(scenario: Scenario, stream: str) -> bool:
    """Whether the stream's latest row of some key is forgotten at some time."""
    keys = [set(key) for _, key in scenario.streams[stream].latest]
    return any(one and one != other for one, other in itertools.pairwise(keys))


def _keeps_all(scenario: Scenario, name: str, query: OracleQuery) -> bool:
    times = {s.event_time for s in scenario.streams.values() if s.event_time}
    bounded = any(f".{t}" in c for t in times for c in query.where)
    bounded |= any(ttl for _, s in query.members for _, ttl in scenario.streams[s].ttls)
    return scenario.queries[name].window is None and not bounded


@lru_cache(maxsize=256)
def filtered(query: OracleQuery) -> frozenset[str]:
    """Return the aliases with local filters, explicit ones or equalities of two columns of the
    alias.

    >>> q = OracleQuery((("a", "s"), ("b", "t")), (), ("a.x = b.x", "a.x = b.y", "a.v > 1"))
    >>> sorted(filtered(q))
    ['a', 'b']
    """
    found: set[str] = set()
    groups: list[set[tuple[str, str]]] = []
    for text in query.where:
        tree = sqlglot.parse_one(text, read="duckdb")
        parts = tree.flatten() if isinstance(tree, exp.And) else [tree]
        for condition in parts:
            columns = {(c.table, c.name) for c in condition.find_all(exp.Column)}
            if len({alias for alias, _ in columns}) == 1:
                found |= {alias for alias, _ in columns}
            elif isinstance(condition, exp.EQ) and len(columns) == 2:
                touched = [g for g in groups if g & columns]
                groups = [*(g for g in groups if g not in touched), columns.union(*touched)]
    for group in groups:
        names = [alias for alias, _ in group]
        found |= {alias for alias in names if names.count(alias) > 1}
    return frozenset(found)
