"""Rulesets made by the real planner, and states for them, for tests of the runtime's modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from anabranch_contract.plans.ruleset import Ruleset, StoreId, StoreSpec, TimeBound
from anabranch_contract.queries.joins import AttrRef, Label, RelationId, Stream, StreamName
from anabranch_contract.queries.mirs import MirId
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_runtime.state.coverage import Interval
from anabranch_runtime.state.manifest import State, StoreState
from anabranch_runtime.storage.segment import Segment
from tests.support.functions.registered import read

MINUTE = 60_000_000
RS = "SELECT R.a, S.b FROM R JOIN S ON R.a = S.a"
ST = "SELECT S.a, T.b FROM S JOIN T ON S.b = T.b"


def stream(name: str, *columns: str, lateness: int | None = 0, timed: bool = True) -> Stream:
    """Return a stream of integer columns, with a timestamp ``ts`` if it is ``timed``."""
    plain = tuple((c, parse_type("bigint")) for c in columns)
    if not timed:
        return Stream(StreamName(name), plain)
    return Stream(StreamName(name), (*plain, ("ts", parse_type("timestamp"))), "ts", lateness)


R, S, T = stream("R", "a"), stream("S", "a", "b"), stream("T", "b")


def rules(
    epoch: int,
    queries: Mapping[str, str],
    *,
    window: int | None = None,
    streams: Sequence[Stream] = (R, S, T),
    parallelism: int = 1,
) -> Ruleset:
    """The ruleset of ``epoch`` as the service makes it; ``window`` (µs) applies to every query."""
    by_name: dict[str, Stream] = {s.name: s for s in streams}
    parsed = [parse_sql(name, read(sql), by_name, window) for name, sql in sorted(queries.items())]
    plan = optimise(parsed, Statistics(), Options(parallelism=parallelism))
    return compile_ruleset(
        plan, parsed, list(streams), epoch=epoch, parallelism=parallelism, sinks={}
    )


def measuring(state: State, **fields: Any) -> State:
    """Return ``state`` with these fields of its measurements replaced."""
    return replace(state, measured=replace(state.measured, **fields))


def segment(
    store: str,
    batches: Interval,
    *,
    tau: Sequence[tuple[int | None, int | None]] = ((None, None),),
    partition: int = 0,
    level: int = 0,
    name: str = "",
) -> Segment:
    """Return a segment's descriptor without a file; ``tau``: (smallest, greatest) per member."""
    path = f"segments/{store}-{batches[0]}-{batches[1]}-{partition}{name}.pack"
    low, high = tuple(t[0] for t in tau), tuple(t[1] for t in tau)
    return Segment(store, partition, path, 10, *batches, low, high, level, (64, 128, 0), ())


def base_store(
    relation: str,
    intervals: Sequence[Interval],
    *,
    since: int | None = None,
    filter: Sequence[str] = (),
    partition: Any = None,
    segments: Sequence[Segment] = (),
    expired_below: int | None = None,
) -> StoreState:
    """A generation of a base relation's store; the stream is the relation's name up to ``[``."""
    spec = _spec(relation, [relation], [relation], partition)
    return StoreState(
        spec,
        (relation.split("[")[0],),
        tuple(filter),
        tuple(intervals),
        since,
        tuple(segments),
        (expired_below,),
    )


def mir_store(
    mir: str,
    members: Sequence[str],
    intervals: Sequence[Interval],
    *,
    since: int | None = None,
    columns: Sequence[tuple[str, str]] = (),
    bounds: Sequence[tuple[str, str, int]] = (),
    segments: Sequence[Segment] = (),
    expired_below: Sequence[int | None] = (),
) -> StoreState:
    """Return a store of an MIR over ``members``, which are relations without filters."""
    spec = replace(
        _spec(mir, members, members, None),
        columns=tuple((Label(m), c) for m, c in columns),
        bounds=tuple(TimeBound(Label(a), Label(b), most) for a, b, most in bounds),
    )
    return StoreState(
        spec,
        tuple(members),
        (),
        tuple(intervals),
        since,
        tuple(segments),
        tuple(expired_below) or tuple(None for _ in members),
    )


def _spec(mir: str, members: Sequence[str], relations: Sequence[str], partition: Any) -> StoreSpec:
    return StoreSpec(
        StoreId(mir),
        MirId(mir),
        tuple(map(Label, members)),
        tuple(map(RelationId, relations)),
        None if partition is None else (AttrRef(*partition[0]), partition[1]),
        1,
    )
