"""The service's role in a run without a service: plans each epoch and publishes its ruleset.

Plans are the optimiser's or random, layouts are the plan's or random (``Script``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow.parquet as pq
import redis

from anabranch_contract import codec
from anabranch_contract.connectors.sinks import LONGEST_INTERVAL, SinkSpec
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.patches import difference
from anabranch_contract.plans.plan import Backfilling, Objective, Optimizer, Plan
from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Boundary
from anabranch_contract.protocol.revisions import RevisionAnswer
from anabranch_contract.queries.changes import ChangeFormat
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import Bounds, JoinQuery, Stream, StreamKind, StreamName
from anabranch_contract.queries.outer_joins import registered
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics, measured
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.backfill import decide
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_runtime.columns.arrow_types import spark_type
from anabranch_runtime.control import Control
from tests.support.cases.random_plans import (
    random_checks,
    random_hot,
    random_layouts,
    random_plan,
    random_revision,
)
from tests.support.scenarios.file import Scenario, called
from tests.support.scenarios.picked import picked_revision
from tests.support.scenarios.script import Script

#: Function from queries, statistics, optimizer, parallelism and number of an epoch to its plan.
Planner = Callable[[Sequence[JoinQuery], Statistics, Optimizer, int, int], Plan]


def plan_normally(
    queries: Sequence[JoinQuery],
    statistics: Statistics,
    optimizer: Optimizer,
    parallelism: int,
    epoch: int,
) -> Plan:
    """Plan as in the service, with a different objective in each epoch."""
    objective = tuple(Objective)[epoch % len(Objective)]
    options = Options(optimizer=optimizer, objective=objective, parallelism=parallelism)
    return optimise(queries, statistics, options)


def odd_plans(seed: int) -> Planner:
    """Return a planner that ignores costs, and mostly makes another plan in each epoch."""
    rng = Random(seed)
    last: list[tuple[list[JoinQuery], Plan]] = []

    def plan(
        queries: Sequence[JoinQuery],
        statistics: Statistics,
        optimizer: Optimizer,
        parallelism: int,
        epoch: int,
    ) -> Plan:
        if last and last[0][0] == list(queries) and rng.random() < 0.2:
            return last[0][1]
        made = random_plan(queries, rng, mirs=rng.choice((0.2, 0.6, 0.9)), apart=True)
        last[:] = [(list(queries), made)]
        return made

    return plan


def gathering_sinks(seed: int, scenario: Scenario) -> dict[str, SinkSpec]:
    """Return sinks that gather the results of batches, for some queries without post-join parts."""
    drawn = Random(seed + 9)
    return {
        name: SinkSpec(commit_interval=interval)
        for name in sorted(scenario.queries)
        if (interval := drawn.choice((0, 1, LONGEST_INTERVAL)))
    }


class PlainService:
    """Plans and publishes as the service would, by the batch numbers of the scenario."""

    def __init__(
        self,
        scenario: Scenario,
        document: dict[str, Any],
        url: str,
        planner: Planner,
        script: Script,
        backfilling: Callable[[int], Backfilling],
        namespace: str = "test",
    ) -> None:
        self.scenario = scenario
        self.streams = [stream_of(scenario, name) for name in sorted(scenario.streams)]
        self._parsed: dict[tuple[str, tuple[tuple[str, int], ...]], JoinQuery] = {}
        self.snapshot: Snapshot | None = None
        self.done: set[int] = set()
        self._redis = redis.Redis.from_url(url)
        self._keys = Keys(namespace)
        self._planner = planner
        self._backfilling = backfilling
        self._layouts = Random(script.seed + 1) if script.layouts else None
        self._revisions = Random(script.seed + 3)
        self._picking = script.picked
        #: Number of revisions planned by dpPick so far.
        self.picked = 0
        self._carried = Random(script.seed + 6) if script.revised else None
        self._checks = Random(script.seed + 7) if script.ahead else None
        self._hot = Random(script.seed + 8) if script.hot else None
        self._answer = RevisionAnswer(0)
        self._offered = RulesetId(-1)
        self._numbers: Counter[int] = Counter()
        self._filters = Random(script.seed + 2) if script.relaxed else None
        #: The rulesets of most epochs are patches of the last full one.
        self._patches = Random(script.seed + 5)
        self._base: tuple[RulesetId, str] | None = None
        self._fresh = script.fresh
        self._past = script.past
        self._relaxed: dict[str, dict[str, tuple[Expr, ...]]] = {}
        self._parallelism = int(document.get("parallelism", 1))
        chosen = document.get("optimizer", "clash")
        self._sinks = gathering_sinks(script.seed, scenario)
        self._optimizers = chosen if isinstance(chosen, dict) else {0: chosen}

    def streams_in(self, epoch: int) -> list[Stream]:
        """Return the streams as in the ruleset of ``epoch``."""
        start = epoch * self.scenario.every
        ttls, latest = self.scenario.ttls(start), self.scenario.latest(start)
        return [
            s if s.is_table else replace(s, ttl=ttls.get(s.name), latest=latest.get(s.name, ()))
            for s in self.streams
        ]

    def query_in(self, name: str, epoch: int) -> JoinQuery:
        """Return a query as in the ruleset of ``epoch``; of an outer join any of its joins."""
        if registered(name) != name:
            parts = self.query_in(registered(name), epoch).planned
            return next(part for part in parts if part.id == name)
        ttls = tuple(sorted(self.scenario.ttls(epoch * self.scenario.every).items()))
        if (name, ttls) not in self._parsed:
            entry = self.scenario.queries[name]
            by_name: dict[str, Stream] = {s.name: s for s in self.streams_in(epoch)}
            parsed = parse_sql(name, entry.sql, by_name, entry.window)
            relaxed = self._relaxed.get(name) or self._relax(parsed)
            if relaxed:
                self._relaxed[name] = relaxed
                parsed = parse_sql(name, entry.sql, by_name, entry.window, relaxed)
            self._parsed[name, ttls] = parsed
        return self._parsed[name, ttls]

    def _relax(self, query: JoinQuery) -> dict[str, tuple[Expr, ...]]:
        """Return ``query`` with a random part of each filter in its stores."""
        if self._filters is None:
            return {}
        rng = self._filters
        return {
            m.alias: tuple(c for c in query.relation_of(m.label).filter if rng.random() < 0.3)
            for m in query.members
        }

    def begins(self, name: str, epochs: Sequence[tuple[int, int]]) -> list[int]:
        """Return the first batches of a query's activations.

        An activation begins with an epoch whose ruleset has the query, if the previous epoch's
        ruleset does not have it, or has it with other bounds, or if one of its streams stops
        keeping the latest rows.

        Args:
            epochs: (epoch, epoch whose ruleset it runs), in order.
        """
        found: list[int] = []
        last: Bounds | None = None
        kept: dict[str, tuple[str, ...]] = {}
        for epoch, ruled in epochs:
            if name not in self.active(ruled):
                last = None
                continue
            query = self.query_in(name, ruled)
            latest = self.scenario.latest(ruled * self.scenario.every)
            keys = {r.stream: latest.get(r.stream, ()) for r in query.relations}
            forgotten = any(kept.get(s) and kept[s] != key for s, key in keys.items())
            if query.bounds != last or forgotten:
                found.append(epoch * self.scenario.every)
            last, kept = query.bounds, {str(s): key for s, key in keys.items()}
        return found

    def active(self, epoch: int) -> list[str]:
        """The queries of ``epoch``'s ruleset, by the calls before the previous epoch's end."""
        start = epoch * self.scenario.every
        return [
            name
            for name, entry in self.scenario.queries.items()
            if self.scenario.next_epoch(entry.register_at) <= start
            and not self._expired(entry.expire_at, start)
        ]

    def publish(self, epoch: int) -> None:
        """Plan and publish ``epoch``."""
        named = [self.query_in(name, epoch) for name in self.active(epoch)]
        active = [join for query in named for join in query.planned]
        start = epoch * self.scenario.every
        switched = [b for b in self._optimizers if self.scenario.next_epoch(b) <= start]
        optimizer = Optimizer(self._optimizers[max(switched, default=0)])
        statistics = measured(self.snapshot) if self.snapshot else Statistics()
        plan = self._planner(active, statistics, optimizer, self._parallelism, epoch)
        model = CostModel(statistics, parallelism=self._parallelism, bounds=LoosestBounds(active))
        rules = compile_ruleset(
            plan,
            active,
            self.streams_in(epoch),
            epoch=epoch,
            parallelism=self._parallelism,
            sinks=self._sinks,
            backfills=decide(plan, active, model, setting=self._backfilling(epoch)),
            freshness={
                str(q.id): {m.alias: own[c] for m in q.members if (c := called(m.alias)) in own}
                for q in active
                for own in [self._fresh.get(str(q.id), {})]
            },
            past=self._past,
        )
        if self._layouts is not None:
            rules = random_layouts(rules, self._layouts)
        rules = self._checked(rules)
        self._set(epoch, rules)
        self.done.add(epoch)
        if self._carried is not None and self._carried.random() < 0.7:
            self._carry_over(rules, self._carried)

    def _checked(self, rules: Ruleset) -> Ruleset:
        """Return ``rules`` with look-ahead filters and hot values as the script says."""
        if self._hot is not None:
            rules = random_hot(rules, self._hot)
        return rules if self._checks is None else random_checks(rules, self._checks)

    def _set(self, epoch: int, rules: Ruleset) -> None:
        text = rulesets.dumps(rules)
        assert rulesets.loads(text) == rules
        if self._base is None or self._patches.random() < 0.2:
            self._base, short = (rules.id, text), text
        else:
            short = difference(*self._base, text).dumps()
        self._redis.mset({self._keys.ruleset(epoch): short, self._keys.newest_ruleset: text})
        self._redis.zadd(self._keys.published, {str(epoch): epoch})

    def _write(self, rules: Ruleset) -> str:
        text = rulesets.dumps(rules)
        assert rulesets.loads(text) == rules
        self._redis.set(self._keys.ruleset(rules.id), text)
        return rulesets.digest(text)

    def answer(self, running: RulesetId, batch: int) -> RulesetId:
        """Answer the measurements before ``batch`` without a new revision.

        Returns:
            As :meth:`revise`. The newest revision may not have taken effect so far, if its batch
            began an epoch.
        """
        self._tell(replace(self._answer, answered=batch))
        waits = self._offered.epoch == running.epoch and self._offered > running
        return self._offered if waits else running

    def revise(self, running: Ruleset, batch: int) -> RulesetId:
        """Answer the measurements before ``batch`` with a random revision; some revisions are for
        an earlier epoch, and some have a wrong digest.

        Returns:
            The ruleset that the batch must run, if it does not begin an epoch.
        """
        rng = self._revisions
        # A published revision's number is not used again.
        self._numbers[running.epoch] += 1
        number = self._numbers[running.epoch]
        queries = [self.query_in(str(q.id), running.epoch) for q in running.queries]
        rules = self._checked(self._revision(running, queries, number))
        fault = rng.random()
        epoch = running.epoch - 1 if fault < 0.05 and running.epoch else running.epoch
        digest = self._write(rules)
        wrong = 0.05 <= fault < 0.1
        later = tuple(one for one in self._answer.upcoming if one.epoch > running.epoch)
        self._tell(RevisionAnswer(epoch, number, "none" if wrong else digest, batch, later))
        self._offered = running.id if wrong or epoch != running.epoch else rules.id
        return self._offered

    def _revision(self, running: Ruleset, queries: list[JoinQuery], number: int) -> Ruleset:
        alone = all(store.owner and len(store.members) == 1 for store in running.stores)
        if self._picking and alone and self._revisions.random() < 0.8:
            found = picked_revision(running, queries, self._revisions, number)
            if found is not None:
                self.picked += 1
                return found
        return random_revision(running, queries, self._revisions, number)

    def _carry_over(self, rules: Ruleset, rng: Random) -> None:
        """Revise a ruleset whose epoch has not begun; some revisions have a wrong digest."""
        self._numbers[rules.epoch] += 1
        queries = [self.query_in(str(q.id), rules.epoch) for q in rules.queries]
        found = self._checked(random_revision(rules, queries, rng, self._numbers[rules.epoch]))
        digest = self._write(found)
        self._tell(self._answer.revised(found.id, "none" if rng.random() < 0.1 else digest))

    def _tell(self, answer: RevisionAnswer) -> None:
        self._answer = answer
        self._redis.set(self._keys.revision, answer.dumps())

    def _expired(self, expire_at: int | None, start: int) -> bool:
        return expire_at is not None and self.scenario.next_epoch(expire_at) <= start


def stream_of(scenario: Scenario, name: str) -> Stream:
    """Return a stream of a scenario, with the types of its file."""
    entry = scenario.streams[name]
    schema = pq.read_schema(entry.path)
    changes, kind = None, "table" if entry.table else "stream"
    if entry.changes:
        changes = ChangeFormat(entry.operation, key=entry.key)
        kind = "upsert" if entry.key else "changes"
    return Stream(
        StreamName(name),
        tuple((f.name, spark_type(f.type)) for f in schema if f.name != entry.operation),
        entry.event_time,
        entry.lateness,
        entry.idle_timeout,
        entry.keep_late,
        ahead_of_stream=entry.ahead_of_stream,
        retain=entry.retain,
        kind=StreamKind(kind),
        latest=entry.key if changes is None else (),
        changes=changes,
    )


def last_snapshot(control: Control) -> Snapshot | None:
    """Return the statistics of the last ended epoch."""
    last: Boundary | None = control.last_boundary()
    return None if last is None or last.snapshot is None else codec.loads(last.snapshot, Snapshot)
