"""The Redis keys of a pipeline, and how long what expires there lasts."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch_contract.plans.ruleset import RulesetId


@dataclass(frozen=True, slots=True)
class Keys:
    """Redis key names under one namespace (one pipeline per namespace).

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
        """Redis Stream: changes of the registry, newest last, in the transaction of each change:
        ``streams`` or ``queries`` -> JSON list of names, or ``settings`` (service). Trimmed to the
        newest :data:`CHANGES_KEPT`.
        """
        return self._key("changes")

    @property
    def activation_changes(self) -> str:
        """Redis Stream: changes of ``activations`` -> JSON list of runs (runtime)."""
        return self._key("activations", "changes")

    @property
    def settings(self) -> str:
        """String: the settings changed at run time, JSON (service)."""
        return self._key("settings")

    def ruleset(self, ruleset: int | RulesetId) -> str:
        """String: the ruleset's wire document, or a :class:`~.plans.patches.Patch` that makes it of
        another (service, immutable).
        """
        return self._key("ruleset", ruleset)

    @property
    def newest_ruleset(self) -> str:
        """String: the wire document of the newest epoch if it is published as a patch, for readers
        that can't apply the patch (service); otherwise absent.
        """
        return self._key("ruleset", "newest")

    @property
    def rations(self) -> str:
        """String: JSON :class:`~.plans.rations.RationSchedule` (service)."""
        return self._key("rations")

    @property
    def approval(self) -> str:
        """Hash: the plan that waits for approval, and the decisions on it (service); ``approved``
        is the digest of the plan to publish (the runtime watches it).
        """
        return self._key("approval")

    @property
    def revision(self) -> str:
        """String: JSON :class:`~.revisions.RevisionAnswer` (service)."""
        return self._key("revision")

    def epoch(self, epoch: int) -> str:
        """String: the epoch record: plan, costs, explain (service, immutable)."""
        return self._key("epoch", epoch)

    @property
    def published(self) -> str:
        """Sorted set: published epoch numbers, scored by themselves (service)."""
        return self._key("published")

    @property
    def boundaries(self) -> str:
        """List: JSON :class:`Boundary` documents (runtime appends; service reads by index, and
        removes those before the last that it has answered).
        """
        return self._key("boundaries")

    @property
    def cursor(self) -> str:
        """String int: number of boundaries in the list that have been answered (service)."""
        return self._key("cursor")

    @property
    def lease(self) -> str:
        """String with an expiry: which service leads, by its random id (service)."""
        return self._key("lease")

    @property
    def leader(self) -> str:
        """Hash: the service that leads or led last: ``owner`` (as in the lease), ``token`` (grows
        with every change), ``address``, ``since`` (POSIX seconds) (service).
        """
        return self._key("leader")

    @property
    def lineage(self) -> str:
        """Hash: run of a query -> the last event about it that was sent (service)."""
        return self._key("lineage")

    @property
    def gate(self) -> str:
        """String int: batches that may start; absent means no limit (client)."""
        return self._key("gate")

    @property
    def stop(self) -> str:
        """String: present when the runtime is to stop."""
        return self._key("stop")

    @property
    def runtime(self) -> str:
        """String: JSON :class:`Progress` (runtime)."""
        return self._key("runtime")

    @property
    def heartbeat(self) -> str:
        """String with an expiry: JSON :class:`Heartbeat`; absent: no runtime works (runtime)."""
        return self._key("heartbeat")

    @property
    def views(self) -> str:
        """Hash: query id -> JSON :class:`ViewRows` of its view (runtime)."""
        return self._key("views")

    @property
    def state(self) -> str:
        """String: JSON :class:`~.state_report.StateReport` (runtime)."""
        return self._key("state")

    @property
    def state_parts(self) -> str:
        """Hash: store -> JSON :class:`~.state_report.StoreParts` (runtime)."""
        return self._key("state", "parts")

    @property
    def pipeline(self) -> str:
        """String: the id of the pipeline that the namespace belongs to; its state has the same
        (runtime).
        """
        return self._key("pipeline")

    @property
    def activations(self) -> str:
        """Hash: query id -> JSON :class:`Activation` (runtime)."""
        return self._key("activations")

    @property
    def samples(self) -> str:
        """Hash: stream -> the newest sample as in :class:`~.samples.StreamSample`
        (runtime).
        """
        return self._key("samples")

    @property
    def interims(self) -> str:
        """List: the newest :data:`INTERIMS_KEPT` JSON :class:`~.interims.Interim`, oldest first,
        packed (runtime).
        """
        return self._key("interims")

    @property
    def batches(self) -> str:
        """List: the newest :data:`~.batches.BATCHES_KEPT` JSON :class:`~.batches.BatchReport`,
        oldest first (runtime).
        """
        return self._key("batches")

    @property
    def history(self) -> str:
        """List: JSON points of a minute each, of a day, oldest first (service)."""
        return self._key("history")

    @property
    def listeners(self) -> str:
        """Sorted set: query id -> until when its results are followed, Redis's time (service)."""
        return self._key("listeners")

    def tail(self, query: str) -> str:
        """Stream: a query's newest results, while a client follows them (runtime)."""
        return self._key("tail", query)

    @property
    def limit(self) -> str:
        """String int: rows that the next batch may bring of Redis Streams and files; absent means
        no limit (runtime: the driver writes, its sources read).
        """
        return self._key("limit")

    @property
    def intake(self) -> str:
        """String: JSON :class:`Intake` (runtime: its sources write, the driver reads)."""
        return self._key("intake")

    @property
    def sources(self) -> str:
        """Hash: stream -> JSON :class:`SourceStatus` (runtime)."""
        return self._key("sources")

    @property
    def held(self) -> str:
        """String: JSON object, id of a feed whose input can't be read for now -> how often that has
        been tried, and the offset up to which the feed has been read (runtime: the driver writes,
        its sources read).
        """
        return self._key("held")

    @property
    def retained(self) -> str:
        """String: JSON object, stream that is retained -> mark of its definition, of the epoch that
        runs (runtime: the driver writes, its sources read).
        """
        return self._key("retained")

    @property
    def owed(self) -> str:
        """The runtime's next batch, where withheld results are owed; else absent (string).

        For the planning of sources: that batch comes though nothing may have arrived.
        """
        return self._key("owed")

    def stream(self, name: str) -> str:
        """Redis Stream: the entries of a ``redis-stream`` source that names no keys."""
        return self._key("stream", name)

    @property
    def tokens(self) -> str:
        """Hash: token id -> JSON token record, with a digest of the secret (service)."""
        return self._key("tokens")

    @property
    def token_uses(self) -> str:
        """Hash: token id -> about when it was used last (service)."""
        return self._key("tokens", "uses")

    def audit(self, kind: str) -> str:
        """Stream: the newest audit entries of one kind (service)."""
        return self._key("audit", kind)

    def statistics(self, epoch: int) -> str:
        """String: the statistics of ``epoch`` as in :class:`Snapshot`, packed (runtime)."""
        return self._key("statistics", epoch)


#: Milliseconds that a heartbeat lasts.
HEARTBEAT_MILLISECONDS = 10_000
#: About how many changes of the registry are kept. Who has missed more reads everything.
CHANGES_KEPT = 100_000
#: How many interim measurements are kept.
INTERIMS_KEPT = 120
#: Seconds that a query counts as followed after the service last said so.
LISTENING_SECONDS = 15
#: Seconds that a tail outlives the last sign of a reader.
TAIL_SECONDS = 60


def tail_entry(batch: int, ordinal: int) -> str:
    """The id of a tail's entry.

    ``ordinal`` is the number of its first row among all of the query's results, ``batch`` the batch
    that the row belongs to. An entry without rows has the number of the first batch that it does
    not include, less one.

    >>> tail_entry(7, 1200), read_tail_entry("9-1200"), tail_entry(-1, 0)
    ('9-1200', (7, 1200), '1-0')
    """
    return f"{batch + 2}-{ordinal}"


def read_tail_entry(entry: str) -> tuple[int, int]:
    """Batch and ordinal of an entry's id."""
    batch, _, ordinal = entry.partition("-")
    return int(batch) - 2, int(ordinal)
