"""Random revisions of a running system's ruleset, to measure the cost of adopting a revision.

A revision is planned as in the service, but with random selectivities of all steps, and published
in place of the service's. So it differs from the running plan, whatever the data, and saves
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import redis

from anabranch_client.replay.tpch import DemoQuery
from anabranch_contract.plans import ruleset as wire
from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.revisions import RevisionAnswer
from anabranch_planner.passes import parse_sql
from anabranch_planner.replan.running import running_plan
from anabranch_runtime.control import fetch_ruleset
from anabranch_service.planning.replanning.periods import Periods
from anabranch_service.planning.replanning.revisions import decide
from benchmarks.profiled import planner_stream
from benchmarks.revision_time import documents, question
from benchmarks.session import Session


class RandomRevisions:
    """Publishes revisions of rulesets of ``system``, whose service makes none itself."""

    def __init__(self, system: Session) -> None:
        self._url = system.pipeline.redis_url
        self._redis = redis.Redis.from_url(self._url)
        self._keys = Keys(system.pipeline.spec.namespace)
        self._streams = {s.name: planner_stream(s) for s in system.streams}
        self._published = 0

    def publish(self, epoch: int, queries: Sequence[DemoQuery]) -> bool:
        """Publish the first revision of the ruleset of ``epoch``; False if no other plan is
        cheaper.

        Args:
            queries: all registered queries, including the queries of ``epoch``.
        """
        if not self._redis.exists(self._keys.ruleset(epoch)):
            return False
        rules = fetch_ruleset(self._url, self._keys.namespace, RulesetId(epoch))
        sql = {query.name: query.sql for query in queries}
        joins = [parse_sql(q.id, sql[q.id], self._streams) for q in rules.queries]
        running = running_plan(rules, joins)
        self._published += 1
        periods = Periods(running.inference).read(documents(rules, 1, self._published))
        found = decide(question(running, periods)).ruleset
        if found is None:
            return False
        revised = wire.dumps(found)
        answer = RevisionAnswer(epoch, found.revision, wire.digest(revised))
        self._redis.set(self._keys.ruleset(RulesetId(epoch, found.revision)), revised)
        self._redis.set(self._keys.revision, answer.dumps())
        return True
