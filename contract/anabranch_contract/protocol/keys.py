"""The Redis keys of a pipeline, and the lifetimes of expiring values."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch_contract.plans.ruleset import RulesetId


@dataclass(frozen=True, slots=True)
class Keys:
    """Redis key names of one pipeline's namespace, with Redis type, content and (writer) of each.

    >>> Keys("demo").ruleset(3)
    'demo:ruleset:3'
    >>> from anabranch_contract.plans.ruleset import RulesetId
    >>> Keys("demo").ruleset(RulesetId(3, 1))
    'demo:ruleset:3.1'
    """

    namespace: str = "anabranch"

    def _key(self, *parts: object) -> str:
        return ":".join((self.namespace, *map(str, parts)))

    @property
    def streams(self) -> str:
        """Hash: stream name -> JSON stream record (service)."""
        return self._key("streams")

    @property
    def queries(self) -> str:
        """Hash: query id -> JSON query record (service)."""
        return self._key("queries")

    @property
    def changes(self) -> str:
        """Redis Stream: changes of the registry, newest last, each added in the change's own
        transaction (service). Fields: ``streams``, ``queries`` or ``functions`` -> JSON list of
        names, or ``settings``; and ``planned`` if the change requires no other plan. Trimmed
        to the newest :data:`CHANGES_KEPT`."""
        return self._key("changes")

    @property
    def activation_changes(self) -> str:
        """Redis Stream: changed activations; field ``activations``: JSON list of runs (runtime)."""
        return self._key("activations", "changes")

    @property
    def settings(self) -> str:
        """String: the settings changed at run time, JSON (service)."""
        return self._key("settings")

    def ruleset(self, ruleset: int | RulesetId) -> str:
        """String: the ruleset's wire document, or a :class:`~.plans.patches.Patch` of another
        ruleset that yields it (service, immutable)."""
        return self._key("ruleset", ruleset)

    @property
    def newest_ruleset(self) -> str:
        """String: the newest epoch's whole wire document, for readers that can't apply patches;
        absent unless that epoch is published as a patch (service)."""
        return self._key("ruleset", "newest")

    @property
    def rations(self) -> str:
        """String: rations per budget, JSON :class:`~.plans.rations.RationSchedule` (service)."""
        return self._key("rations")

    @property
    def approval(self) -> str:
        """Hash: the plan that waits for approval, and the operator's decisions (service). Its field
        ``approved``, which the runtime watches, is the digest of the plan to publish."""
        return self._key("approval")

    @property
    def revision(self) -> str:
        """String: newest revisions, JSON :class:`~.revisions.RevisionAnswer` (service)."""
        return self._key("revision")

    def epoch(self, epoch: int) -> str:
        """String: the epoch record: plan, costs, explain (service, immutable)."""
        return self._key("epoch", epoch)

    @property
    def published(self) -> str:
        """Sorted set: numbers of published epochs, each its own score (service)."""
        return self._key("published")

    @property
    def boundaries(self) -> str:
        """List: JSON :class:`Boundary` documents. The runtime appends; the service reads by index
        and removes all boundaries before the last one for which it has published a ruleset."""
        return self._key("boundaries")

    @property
    def reports(self) -> str:
        """Stream: an entry for each report that wakes the service, a boundary or an interim; only
        the newest is kept (runtime)."""
        return self._key("reports")

    @property
    def cursor(self) -> str:
        """String int: number of entries of ``boundaries`` (ends of epochs) processed (service)."""
        return self._key("cursor")

    @property
    def lease(self) -> str:
        """String with an expiry: random id of the service that leads (service)."""
        return self._key("lease")

    @property
    def leader(self) -> str:
        """Hash: the service that leads or led last: ``owner`` (as in the lease), ``token`` (grows
        with every change), ``address``, ``since`` (POSIX seconds) (service)."""
        return self._key("leader")

    @property
    def lineage(self) -> str:
        """Hash: run of a query -> the last OpenLineage event sent for it (service)."""
        return self._key("lineage")

    @property
    def gate(self) -> str:
        """String int: number of batches that may start; absent: no limit (client)."""
        return self._key("gate")

    @property
    def stop(self) -> str:
        """String, any value: if it exists, the runtime finishes its batch and stops."""
        return self._key("stop")

    @property
    def runtime(self) -> str:
        """String: state of the runtime, a JSON :class:`Progress` (runtime)."""
        return self._key("runtime")

    @property
    def heartbeat(self) -> str:
        """String with an expiry: JSON :class:`Heartbeat`; absent: no runtime runs (runtime)."""
        return self._key("heartbeat")

    @property
    def standby(self) -> str:
        """String with an expiry: JSON :class:`Heartbeat` of a runtime that waits for the end of
        another one; absent: no runtime waits (runtime)."""
        return self._key("standby")

    @property
    def views(self) -> str:
        """Hash: query id -> JSON :class:`ViewRows` of its view (runtime)."""
        return self._key("views")

    @property
    def state(self) -> str:
        """String: all stores, JSON :class:`~.state_report.StateReport` (runtime)."""
        return self._key("state")

    @property
    def state_parts(self) -> str:
        """Hash: store -> its parts, JSON :class:`~.state_report.StoreParts` (runtime)."""
        return self._key("state", "parts")

    @property
    def pipeline(self) -> str:
        """String: id of the namespace's pipeline, as in its state directory (runtime)."""
        return self._key("pipeline")

    @property
    def activations(self) -> str:
        """Hash: query id -> JSON :class:`Activation` (runtime)."""
        return self._key("activations")

    @property
    def samples(self) -> str:
        """Hash: stream -> its newest JSON :class:`~.measurements.StreamSample` (runtime)."""
        return self._key("samples")

    @property
    def latest(self) -> str:
        """Hash: stream -> its JSON :class:`~.measurements.LatestRows` (runtime)."""
        return self._key("latest")

    @property
    def interims(self) -> str:
        """List: the newest :data:`INTERIMS_KEPT` :class:`~.interims.Interim`, packed (runtime)."""
        return self._key("interims")

    @property
    def batches(self) -> str:
        """List: the newest :data:`~.batches.BATCHES_KEPT` JSON batch reports (runtime)."""
        return self._key("batches")

    @property
    def profile(self) -> str:
        """String: CPU time by purpose, JSON :class:`~.profile.CpuReport` (runtime)."""
        return self._key("profile")

    @property
    def history(self) -> str:
        """List: JSON points of the last day's history, one per minute, oldest first (service)."""
        return self._key("history")

    @property
    def listeners(self) -> str:
        """Sorted set: query id -> Redis time until which a client follows its results (service)."""
        return self._key("listeners")

    def tail(self, query: str) -> str:
        """Redis Stream: a query's newest results, while a client follows them (runtime)."""
        return self._key("tail", query)

    @property
    def limit(self) -> str:
        """String int: maximum number of rows of Redis Streams and files in a batch, for the next
        start of the runtime; absent: no limit (runtime)."""
        return self._key("limit")

    @property
    def sources(self) -> str:
        """Hash: stream -> its source's state, JSON :class:`SourceStatus` (runtime)."""
        return self._key("sources")

    def stream(self, name: str) -> str:
        """Redis Stream: entries for a ``redis-stream`` source that names no keys."""
        return self._key("stream", name)

    @property
    def tokens(self) -> str:
        """Hash: token id -> JSON token record, with a digest of the secret (service)."""
        return self._key("tokens")

    @property
    def token_uses(self) -> str:
        """Hash: token id -> approximate time of its last use (service)."""
        return self._key("tokens", "uses")

    def audit(self, kind: str) -> str:
        """Redis Stream: the newest audit entries of one kind (service)."""
        return self._key("audit", kind)

    def statistics(self, epoch: int) -> str:
        """String: the statistics of ``epoch`` as in :class:`Snapshot`, packed (runtime)."""
        return self._key("statistics", epoch)


#: Milliseconds after which a heartbeat in Redis expires.
HEARTBEAT_MILLISECONDS = 10_000
#: Approximate number of registry changes kept; a reader that lacks more reads the whole registry.
CHANGES_KEPT = 100_000
#: Number of interim measurements kept in Redis.
INTERIMS_KEPT = 120
#: Seconds for which a query is followed after the service's last entry in ``Keys.listeners``.
LISTENING_SECONDS = 15
#: Seconds for which a tail is kept after the last sign of a reader.
TAIL_SECONDS = 60


def tail_entry(batch: int, ordinal: int) -> str:
    """Return the id of an entry in a query's tail.

    ``ordinal`` numbers the entry's first row among all results of the query; ``batch`` is this
    row's batch. For an entry without rows, ``batch`` is the last batch that it counts.

    >>> tail_entry(7, 1200), read_tail_entry("9-1200"), tail_entry(-1, 0)
    ('9-1200', (7, 1200), '1-0')
    """
    return f"{batch + 2}-{ordinal}"


def read_tail_entry(entry: str) -> tuple[int, int]:
    """Parse the id of a tail's entry into batch and ordinal."""
    batch, ordinal = entry_numbers(entry)
    return batch - 2, ordinal


def entry_numbers(entry: str) -> tuple[int, int]:
    """Parse the id of an entry of a Redis Stream; ids are ordered by these two numbers."""
    first, _, second = entry.partition("-")
    return int(first), int(second)
