"""Merges of segments on a cluster: by the host that owns the partition, else by the driver.

A worker process of the owner merges while it runs tasks, in threads of low priority. So no slot is
taken from a batch, the segments need not be fetched, and the merged segment is on the host that
probes it. The driver sends the order to the process's message server. If there is no process, or
the call fails, the driver merges into another pack; at most one of both packs is committed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import structlog

from anabranch_contract import codec
from anabranch_contract.plans.ruleset import RulesetId
from anabranch_runtime.epochs.layout import Layout, StoreLayout
from anabranch_runtime.errors import StateError
from anabranch_runtime.exchange.calls import call_options, client_of, forget_client
from anabranch_runtime.exchange.complaints import complaint, first_cause
from anabranch_runtime.exchange.post_office import PostOffice
from anabranch_runtime.recovery.rulesets import task_ruleset
from anabranch_runtime.storage.ahead import give_way
from anabranch_runtime.storage.segment import Merge, Segment
from anabranch_runtime.task.compact import Compaction, MergedSegment, compact, merged_pack
from anabranch_runtime.task.context import BatchContext

_LOG = structlog.get_logger("anabranch.runtime")
#: Type of the Flight action of a merge, and its timeout in seconds.
REQUEST, PATIENCE = "merge", 600.0
#: One thread for segments written by batches, one for merged segments (:class:`Compactor`).
_MERGING = ThreadPoolExecutor(2, thread_name_prefix="merge", initializer=give_way)
#: Packs that running merges write. Event: a merge has run since the last call of :func:`lately`.
_UNDER_WAY, _LATELY = list[str](), threading.Event()


@dataclass(frozen=True, slots=True)
class Order:
    """Request for a merge: a :class:`Compaction` without the fields that the host knows.

    Attributes:
        pack: name of the pack to write.
        store: the layout of the segments' store.
        since, boundaries: as in :class:`Compaction`.
    """

    pack: str
    segments: tuple[Segment, ...]
    ruleset: RulesetId
    store: StoreLayout
    since: dict[str, int]
    boundaries: dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Answer:
    """Reply to an :class:`Order`: an encoded ``error``, or the fields of :class:`MergedSegment`."""

    error: dict[str, Any] | None
    segment: Segment | None = None
    seconds: float = 0.0


def take_orders(office: PostOffice, context: BatchContext) -> None:
    """Let the server ``office`` accept requests for merges in the cache ``context.root``."""

    def merge(body: bytes) -> bytes:
        return _MERGING.submit(_merge_ordered, context, body).result()

    office.requests[REQUEST] = merge


def lately() -> bool:
    """Whether a worker's merge has run in this process since the last call."""
    found = _LATELY.is_set() or bool(_UNDER_WAY)
    _LATELY.clear()
    return found


def ask(location: str, token: str, work: Compaction) -> MergedSegment:
    """Let the worker process at ``location`` do the merge of segments ``work``.

    Raises:
        StateError: a segment is damaged or missing.
        pa.ArrowException, OSError: no process answers there, or the call has failed.
    """
    layout, parts = work.layout, work.merge.segments
    order = Order(
        work.pack,
        parts,
        layout.ruleset.id,
        layout.stores[parts[0].store],
        dict(work.since),
        dict(work.boundaries),
    )
    action = flight.Action(REQUEST, codec.dumps(order).encode())
    try:
        (found,) = client_of(location).do_action(action, call_options(token, PATIENCE))
    except (pa.ArrowException, OSError):
        forget_client(location)
        raise
    answer = codec.loads(found.body.to_pybytes(), Answer)
    error = first_cause([answer.error] if answer.error is not None else [])
    if error is not None:
        raise error
    assert answer.segment is not None
    return MergedSegment(answer.segment, answer.seconds)


def by_owner(
    office_of: Callable[[Compaction], str | None],
    token: str,
    anywhere: Callable[[Compaction], MergedSegment],
) -> Callable[[Compaction], MergedSegment]:
    """Return a function that merges segments in the owner's process, or else by ``anywhere``."""
    # Unreachable addresses are not called again, since a restarted process has another port.
    gone = set[str]()

    def work(compaction: Compaction) -> MergedSegment:
        location = office_of(compaction)
        if location is not None and location not in gone:
            try:
                return ask(location, token, compaction)
            except (pa.ArrowException, OSError) as error:
                if isinstance(error, flight.FlightUnavailableError):
                    gone.add(location)
                said = str(error).split("\n", 1)[0][:500]
                _LOG.warning("merge lost", at=location, pack=compaction.pack, error=said)
        return anywhere(replace(compaction, pack=merged_pack()))

    return work


def _merge_ordered(context: BatchContext, body: bytes) -> bytes:
    order = codec.loads(body, Order)
    url, namespace = context.redis_url, context.namespace
    layout = Layout(
        task_ruleset(context.root, url, namespace, order.ruleset), {order.store.id: order.store}
    )
    merge, objects = Merge(order.segments), context.objects
    work = Compaction(
        context.root, order.pack, merge, layout, order.since, objects, order.boundaries
    )
    _UNDER_WAY.append(order.pack)
    try:
        found = compact(work)
    except StateError as error:
        return codec.dumps(Answer(complaint(error, "its host", Path(context.root)))).encode()
    finally:
        _LATELY.set()
        _UNDER_WAY.remove(order.pack)
    return codec.dumps(Answer(None, found.segment, found.seconds)).encode()
