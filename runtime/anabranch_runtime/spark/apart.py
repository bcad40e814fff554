"""Tasks of Spark on hosts that share only the object store.

A task's state directory is its host's cache: files are fetched into it before they are read, and
uploaded from it after they are written. The driver coordinates tasks, which send each other
messages (``exchange``).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.errors import PipelineError, SourceError
from anabranch_runtime.exchange.calls import keep_clients
from anabranch_runtime.exchange.complaints import complaint
from anabranch_runtime.exchange.fleet import Fleet
from anabranch_runtime.exchange.host import host_id, site
from anabranch_runtime.exchange.lines import TaskLine
from anabranch_runtime.exchange.post_office import Deliveries, post_office
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.sources.feed import Piece
from anabranch_runtime.sources.ingest.landing import object_of
from anabranch_runtime.spark.merges import lately, take_orders
from anabranch_runtime.state.manifest import Chains
from anabranch_runtime.storage.ahead import AHEAD, bring, missing
from anabranch_runtime.storage.cache import sweep
from anabranch_runtime.storage.durable import attach
from anabranch_runtime.task.context import BatchContext, live_segments
from anabranch_runtime.task.memory import BASE
from anabranch_runtime.task.worker import run_task

#: Least pause between two cleanings of the cache: seconds, and multiple of a cleaning's duration.
SWEEP, REST = 10.0, 100.0
_next_sweep = 0.0
#: The packs that were needed at the last cleaning of the cache.
_needed: frozenset[str] = frozenset()
#: Cache directory of the last batch; number of partitions -> mask of this host's partitions.
_known: tuple[str, dict[int, bytes]] | None = None


def cache_directory(cache: str) -> Path:
    """Return this executor's cache directory; a relative path is below its working directory."""
    return Path(cache).absolute()


def as_here(context: BatchContext, piece: Piece) -> Piece:
    """Return an input ``piece`` with paths on this host, after its files were fetched to them.

    Raises:
        SourceError: ``missing-file``: the object store has no such file.
    """
    if piece.kind not in ("recording", "landed"):
        return piece
    path = Path(piece.where["path"])
    name = object_of(path) if piece.kind == "landed" else f"{path.parent.name}/{path.name}"
    cache = cache_directory(context.hosts.cache)
    mine = cache / name
    if not mine.exists() and not attach(cache, context.objects).bring(name, mine):
        raise SourceError(
            "missing-file",
            f"{name} is not in the object store",
            field=piece.stream,
            remedy="find out who deletes objects there, and start the runtime again; a directory "
            "can be the object store (--object-store) only if all hosts share it",
        )
    mine.touch()
    return replace(piece, where={**piece.where, "path": str(mine)})


@contextmanager
def told(context: BatchContext, line: TaskLine, address: str) -> Iterator[None]:
    """Send an error of the ``with`` block to the driver as structured data; Spark would pass on
    only a failed task's traceback."""
    try:
        yield
    except Exception as error:
        found = complaint(error, address, cache_directory(context.hosts.cache))
        if found is not None:
            with suppress(PipelineError):
                line.complain(found)
        raise


def run_apart(
    context: BatchContext,
    ruleset: Ruleset,
    read: Callable[[Sequence[Piece]], Iterable[Block]],
    line: TaskLine,
    address: str,
) -> TaskReport:
    """Run a task of a batch (:func:`~anabranch_runtime.task.worker.run_task`) in this host's cache.

    Args:
        context: the driver's context of the batch.
        read: yields the blocks of input pieces, one after the other.
        line: connection to the driver. ``address``: address of this executor.
    """
    task, tasks = line.task, line.tasks
    cache = cache_directory(context.hosts.cache)
    staging = cache / "staging" / context.attempt
    context = replace(context, root=str(cache), staging=str(staging))
    keeper = attach(context.root, context.objects, context.hosts.cache_size)
    fetched = keeper.fetched
    office = post_office(address, line.address.token, cache / "letters")
    office.only(context.attempt)
    take_orders(office, context)
    hello = line.once(lambda: json.dumps([host_id(cache), office.location, site()]))
    hosts, locations, sites = ([json.loads(m)[at] for m in hello] for at in range(3))
    keep_clients(locations)
    host = hosts[task]
    _bring(context, Fleet(hosts, task, context.hosts.placement), line.sign)
    fetched = keeper.fetched - fetched
    with closing(Deliveries(office, context.attempt, task, locations)) as post:
        report = run_task(
            context,
            ruleset,
            read(context.input.sites.share(context.input.shares, sites, task)),
            task=task,
            tasks=tasks,
            exchange=line,
            sharing=hosts.count(host),
            advanced=line.sign,
            hosts=hosts,
            post=post,
        )
    report.host.name, report.host.site = host, site()
    report.fetched_bytes += fetched
    for name in (*report.files.values(), *report.late.values()):
        (cache / name).unlink(missing_ok=True)
    report.host.office = office.location
    if lately() and report.memory_share is not None:
        # A merge may have used memory in this process, so the limit has one more share for it.
        report.memory_share += report.memory_share - BASE
    if hosts.index(host) == task:
        fleets = [Fleet(hosts, task, context.hosts.placement)]
        if context.hosts.coming is not None:
            fleets.append(Fleet(hosts, task, context.hosts.coming))
            dealt = live_segments(context, fleets[1].own)
            AHEAD.begin(context.root, chain.from_iterable(dealt.values()))
        _tidy(context, cache, fleets)
    return report


def _bring(context: BatchContext, fleet: Fleet, advanced: Callable[[], None]) -> None:
    """Fetch this task's part of the missing packs of partitions that are new on this host."""
    global _known
    live = live_segments(context, None if fleet.alone else fleet.own)
    counts = {context.stores[name].partitions for name in live}
    own = (context.root, {count: fleet.own(count).tobytes() for count in counts})
    if own == _known:
        return
    AHEAD.stop()
    wanted = missing(context.root, chain.from_iterable(live.values()))
    share = wanted[fleet.mates.index(fleet.task) :: len(fleet.mates)]
    bring(context.root, share, advanced)
    _known = own


def _tidy(context: BatchContext, cache: Path, fleets: Sequence[Fleet]) -> None:
    """Now and then, delete unneeded files from the host's cache. Packs that the batch's manifest
    names for this host's partitions stay.

    Args:
        fleets: the hosts of partitions in this epoch, and in the next epoch if they differ.
    """
    global _next_sweep, _needed
    began = time.monotonic()
    if began < _next_sweep:
        return
    named, needed, first = set[str](), set[str](), context.batch
    if context.manifest is not None:
        chains = Chains(cache)
        state, first = chains.state(context.batch), chains.first(context.batch)
        for segment in state.kept:
            named.add(segment.path)
            store = state.stores.get(segment.store)
            if store is None or any(
                fleet.own(store.spec.partitions)[segment.partition] for fleet in fleets
            ):
                needed.add(segment.path)
    sweep(cache, needed, named | _needed, context.batch, first)
    _needed = frozenset(needed)
    attach(context.root, context.objects).trim(needed)
    ended = time.monotonic()
    _next_sweep = ended + max(SWEEP, REST * (ended - began))
