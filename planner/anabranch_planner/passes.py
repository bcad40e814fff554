"""The passes of planning, in order: from a statement to the rules of an epoch.

The passes of a tuple run in order. Each pass takes the result of the preceding one, and the request
that all passes share. ``tests/planner/golden/passes`` has the result of every pass for queries of
TPC-H.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from sqlglot import exp

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.connectors.user_functions import UserFunction
from anabranch_contract.errors import QueryError
from anabranch_contract.plans.plan import BACKFILL_HORIZON, Backfilling, Objective, Optimizer, Plan
from anabranch_contract.plans.ruleset import Ruleset, Substreams
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_planner.binding.functions.absent import refusal
from anabranch_planner.binding.functions.rewrites import REWRITINGS
from anabranch_planner.binding.typecheck import BY_MEETING
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.parts import PlanPart, divide, footprint_of_parts
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.documents.structured import read_document
from anabranch_planner.logical.nodes import Node
from anabranch_planner.logical.plan import logical_plan
from anabranch_planner.logical.tsc import convert
from anabranch_planner.normal.bind import Registration, bind
from anabranch_planner.normal.normalise import normalise
from anabranch_planner.normal.weights import TablesFollowed, following
from anabranch_planner.plans.backfill import BackfillDecision, decide
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.decisions import Decisions, decisions_of
from anabranch_planner.plans.hot_keys import HotKeys, deal_hot, hot_keys
from anabranch_planner.plans.look_ahead import LookAheadFilter, ask, questions
from anabranch_planner.plans.optimise import (
    Options,
    PlanRequest,
    StandalonePlans,
    assemble,
    build,
    charge,
    check,
    plan_apart,
    solve,
)
from anabranch_planner.sql.functions import is_reserved
from anabranch_planner.sql.functions import names as function_names
from anabranch_planner.sql.mistakes.malformed import too_deep
from anabranch_planner.sql.syntax import parse_expression, parse_statement
from anabranch_planner.sql.unresolved import Unresolved, located
from anabranch_planner.subqueries.decorrelation import decorrelated

# --- a statement: text -> Unresolved -> Bound -> JoinQuery ---------------------------------------


def parse(sql: str, _: Registration) -> Unresolved:
    """Read one SELECT statement; see :func:`parse_statement`."""
    return parse_statement(sql)


def read(document: Mapping[str, Any], _: Registration) -> Unresolved:
    """Read a structured query; see :func:`read_document`."""
    return read_document(document)


#: Passes of a statement: parse; resolve names and types; bring into canonical form.
STATEMENT = (parse, bind, normalise)
DOCUMENT = (read, bind, normalise)


# --- a joint plan: queries -> Problem -> Outcome -> Plan -----------------------------------------

#: Joint plan of all queries; ``search.anytime`` has the steps of ``solve``.
PLAN = (check, build, charge, solve, assemble)
#: Passes that plan each query alone, for comparison with the joint plan.
APART = (check, build, plan_apart)


# --- the rules of an epoch: Plan -> DividedPlan -> Decided -> Rules -------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRequest:
    """Inputs, besides a plan, of the passes that compile the rules of its epoch.

    Attributes:
        queries: the active queries, for which the plan was made under ``statistics``.
        streams: every registered stream.
        epoch: number of the epoch.
        sinks: query id -> the sink of its results.
        freshness: query id -> alias -> maximum age in microseconds of an alias's tuples in results.
        past: queries that also emit results over tuples from before their activation.
        backfilling, horizon: whether to backfill new intermediate results; and for how long plans
            are expected to use them.
        running: the backfill decisions of the running epoch; None: no epoch runs.
        before: the parts of the previous plan, whose cached rules may be reused.
        look_ahead: whether look-ahead filters are added where they pay.
        hot_keys: whether new rows of frequent values are spread over several hosts where that pays.
    """

    queries: Sequence[JoinQuery]
    streams: Sequence[Stream]
    statistics: Statistics
    epoch: int
    parallelism: int
    sinks: Mapping[str, SinkSpec]
    objective: Objective = Objective.TUPLES
    backfilling: Backfilling = Backfilling.AUTO
    horizon: float = BACKFILL_HORIZON
    running: Decisions | None = None
    freshness: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    past: frozenset[str] = frozenset()
    before: tuple[PlanPart, ...] = ()
    look_ahead: bool = False
    hot_keys: bool = False


class DividedPlan(NamedTuple):
    """A plan, and its division into parts that have no rules in common."""

    plan: Plan
    parts: tuple[PlanPart, ...]


class Decided(NamedTuple):
    """A plan, its parts, and the decisions to backfill intermediate results."""

    plan: Plan
    parts: tuple[PlanPart, ...]
    backfills: tuple[BackfillDecision, ...]


class Rules(NamedTuple):
    """Ruleset, backfill decisions, parts, look-ahead filters and hot values of an epoch. ``hot`` is
    None unless spreading of hot values was enabled."""

    ruleset: Ruleset
    backfills: tuple[BackfillDecision, ...]
    parts: tuple[PlanPart, ...]
    ahead: tuple[LookAheadFilter, ...] = ()
    hot: HotKeys | None = None

    @property
    def decisions(self) -> Decisions:
        """Backfill decisions that the next epoch's planning takes into account."""
        return decisions_of(self.ruleset, footprint_of_parts(self.parts), self.backfills)


def divide_plan(plan: Plan, request: EpochRequest) -> DividedPlan:
    """Divide a plan into parts with independent rules, so that later plans can reuse them."""
    return DividedPlan(plan, divide(plan, request.queries, request.before))


def decide_past(divided: DividedPlan, request: EpochRequest) -> Decided:
    """Decide which intermediate results to backfill; none before any data have arrived."""
    if request.backfilling is Backfilling.AUTO and request.statistics == Statistics():
        return Decided(*divided, ())
    running = request.running
    backfills = decide(
        divided.plan,
        request.queries,
        _model(request, divided.plan.substreams),
        setting=request.backfilling,
        horizon=request.horizon,
        running=None if running is None else running.footprint,
        earlier=() if running is None else running.backfills,
        parts=divided.parts,
    )
    return Decided(*divided, backfills)


def compile_rules(decided: Decided, request: EpochRequest) -> Rules:
    """Compile the plan's parts to the epoch's ruleset."""
    ruleset = compile_ruleset(
        decided.plan,
        request.queries,
        request.streams,
        epoch=request.epoch,
        parallelism=request.parallelism,
        sinks=request.sinks,
        freshness=request.freshness,
        past=request.past,
        backfills=decided.backfills,
        parts=decided.parts,
    )
    return Rules(ruleset, decided.backfills, decided.parts)


def ask_ahead(rules: Rules, request: EpochRequest) -> Rules:
    """Add look-ahead filters (drop tuples without a later match), if enabled, where they pay."""
    if not request.look_ahead:
        return rules
    model = _model(request, rules.ruleset.substreams)
    prices = request.statistics.constants
    found = questions(rules.ruleset, request.queries, model, prices)
    return rules._replace(ruleset=ask(rules.ruleset, found), ahead=found)


def deal_hot_keys(rules: Rules, request: EpochRequest) -> Rules:
    """Spread new rows of frequent keys over several hosts, if enabled and where it saves time."""
    exchange = request.statistics.exchange
    if not request.hot_keys or exchange is None or exchange.hosts < 2:
        return rules
    found = hot_keys(
        rules.ruleset,
        request.queries,
        _model(request, rules.ruleset.substreams),
        exchange,
        request.statistics.constants,
        {} if request.running is None else request.running.hot,
    )
    return rules._replace(ruleset=deal_hot(rules.ruleset, found), hot=found)


def _model(request: EpochRequest, substreams: Sequence[Substreams]) -> CostModel:
    return CostModel(
        request.statistics,
        objective=request.objective,
        parallelism=request.parallelism,
        bounds=LoosestBounds(request.queries),
        substreams=substreams,
    )


#: Validation is not a pass here: the epoch loop validates plans before publication.
RULES = (divide_plan, decide_past, compile_rules, ask_ahead, deal_hot_keys)


# --- an explanation: JoinQuery -> logical plan -> logical plan with multi-way joins --------------


class Conversion(NamedTuple):
    """The logical plan of a query with binary joins, and with multi-way joins."""

    before: Node
    after: Node


def plan_joins(query: JoinQuery, streams: Mapping[str, Stream]) -> Node:
    """Express the query as a logical plan with binary joins."""
    return logical_plan(query, streams)


def convert_joins(before: Node, _: Mapping[str, Stream]) -> Conversion:
    """Replace the logical plan's binary joins by multi-way joins (TSC)."""
    return Conversion(before, convert(before))


CONVERSION = (plan_joins, convert_joins)


# --- running the passes --------------------------------------------------------------------------


def _run(passes: Sequence[Callable[..., Any]], value: Any, request: object) -> Any:
    for step in passes:
        value = step(value, request)
    return value


def read_sql(sql: str) -> Unresolved:
    """Parse one SELECT statement, without resolving its names.

    Raises:
        QueryError: ``field`` is ``"sql"``; the remedy says what to change.
    """
    with _malformed():
        return parse_statement(sql)


def builtin_functions() -> tuple[str, ...]:
    """Return the names of SQL's functions: scalar functions, aggregates and window functions."""
    return tuple(sorted({*REWRITINGS, *BY_MEETING, *function_names()}))


def check_function_name(function: UserFunction) -> None:
    """Reject a user's function whose name has a meaning in SQL.

    Raises:
        QueryError: ``name-of-builtin``.
    """
    name = function.name
    try:
        call = parse_expression(f"{name}(x)")
        plain = isinstance(call, exp.Anonymous) and call.name == name and len(call.expressions) == 1
    except QueryError:
        plain = False
    reserved = name in REWRITINGS or name in BY_MEETING or refusal(name, ()) is not None
    if not plain or reserved or is_reserved(name):
        raise QueryError(
            "name-of-builtin",
            f"{name} is a function or a word of SQL",
            field="signature",
            remedy="choose another name",
        )


def parse_sql(
    query_id: str,
    sql: str | Unresolved,
    streams: Mapping[str, Stream],
    window: int | Mapping[str, int] | None = None,
    relaxed: Mapping[str, tuple[Expr, ...]] | None = None,
) -> JoinQuery:
    """The join query of one SELECT statement, given as text or as the result of :func:`read_sql`;
    for the other arguments see :class:`Registration`.

    Raises:
        QueryError: ``field`` is ``"sql"`` (or ``"window..."``); the remedy says what to change.

    >>> from anabranch_contract.queries.joins import Stream, StreamName
    >>> from anabranch_contract.queries.types import parse_type
    >>> b = ("b", parse_type("int"))
    >>> s = {n: Stream(StreamName(n), (b,)) for n in "RST"}
    >>> q = parse_sql("q", "SELECT R.b FROM R JOIN S USING (b) JOIN T ON T.b = S.b", s)
    >>> [str(m) for m in q.classes[0].members]
    ['R.b', 'S.b', 'T.b']
    """
    given = Registration(query_id, streams, window, relaxed or {})
    with _malformed():
        return _resolved(sql, STATEMENT, given)


def _resolved(
    statement: object, passes: Sequence[Callable[..., Any]], given: Registration
) -> JoinQuery:
    """The result of ``passes`` over a statement; parsing, the first, may already be done.

    If tables can't be looked up, the statement is bound again with tables as streams of changes.
    """
    first, *others = passes
    tree = statement if isinstance(statement, Unresolved) else first(statement, given)
    found: JoinQuery
    try:
        found = _run(others, tree, given)
    except TablesFollowed:
        found = _run(others, tree, replace(given, streams=following(given.streams)))
    return found


def without_subqueries(tree: Unresolved, streams: Mapping[str, Stream]) -> Unresolved:
    """Return a statement with the subqueries of its expressions turned into joins.

    Raises:
        QueryError: ``field`` is ``"sql"``; the remedy says what to change.
    """
    with _malformed():
        return decorrelated(tree, streams)


@contextmanager
def _malformed() -> Iterator[None]:
    """Attach the field ``sql`` to errors raised in the block."""
    with located("sql"):
        try:
            yield
        except RecursionError as cause:
            raise too_deep() from cause


def parse_structured(
    query_id: str,
    document: Mapping[str, Any] | Unresolved,
    streams: Mapping[str, Stream],
    window: int | Mapping[str, int] | None = None,
) -> JoinQuery:
    """The join query of a structured query, given as a document or as the result of
    ``read_document``; for the other arguments see :class:`Registration`.

    Raises:
        QueryError: ``field`` is the path of the invalid part, e.g. ``"where[1]"``.
    """
    with located("from"):
        return _resolved(document, DOCUMENT, Registration(query_id, streams, window))


def optimise(queries: Sequence[JoinQuery], statistics: Statistics, options: Options) -> Plan:
    """Plan ``queries`` under ``statistics``.

    Raises:
        QueryError: two queries have the same id, or a query is a cross product.
        PlannerError: the limits can't be met, or the formulation does not support them.
    """
    plan: Plan = _run(PLAN, queries, PlanRequest(tuple(queries), statistics, options))
    return plan


def optimise_apart(
    queries: Sequence[JoinQuery], statistics: Statistics, options: Options
) -> StandalonePlans:
    """Plan each of ``queries`` separately, without substreams, to compare with a joint plan.

    Raises:
        QueryError: two queries have the same id, or a query is a cross product.
    """
    alike = replace(options, substreams=1)
    if options.optimizer is Optimizer.DPPICK:
        alike = replace(alike, optimizer=Optimizer.INDIVIDUAL)
    apart: StandalonePlans = _run(APART, queries, PlanRequest(tuple(queries), statistics, alike))
    return apart


def make_rules(plan: Plan, request: EpochRequest) -> Rules:
    """Compile the rules of an epoch that runs ``plan``.

    Raises:
        RulesetError: the rules contradict each other.
    """
    rules: Rules = _run(RULES, plan, request)
    return rules


def parse_joins(parsed: Unresolved, streams: Mapping[str, Stream]) -> JoinQuery:
    """The joins of a statement whose SELECT list, or a clause after the joins, is rejected.

    Raises:
        QueryError: the joins themselves are rejected.
    """
    return parse_sql("", replace(parsed, items=(), post_join=None), streams)


def convert_query(query: JoinQuery, streams: Mapping[str, Stream]) -> Conversion:
    """The logical plans of a query over ``streams``, with binary and with multi-way joins."""
    found: Conversion = _run(CONVERSION, query, streams)
    return found
