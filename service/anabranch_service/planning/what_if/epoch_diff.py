"""Difference between the plans of two published epochs, both priced with the newest statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from anabranch_contract.rest.names import readable, relation_names
from anabranch_contract.rest.planning.epochs import EpochDiffOut
from anabranch_contract.rest.planning.insight import DiffRecord, ReasonsRecord
from anabranch_planner.explain.diff import diff, diff_document
from anabranch_planner.plans.decisions import DecisionsError
from anabranch_service.planning.request import Registered, plan_task, read_queries, read_registered
from anabranch_service.planning.task import cost_model, decisions_of
from anabranch_service.planning.widths import relation_widths
from anabranch_service.planning.work import ThreadPools
from anabranch_service.registry.records import EpochRecord
from anabranch_service.registry.statements import NormalForms
from anabranch_service.registry.store import Store
from anabranch_service.settings import ServiceSettings

#: Maximum number of entries per list of a difference; the costliest are listed.
MOST = 100
#: Settings that are compared too, since they change a plan's cost even with equal steps.
SETTINGS = ("optimizer", "objective", "parallelism")


async def compare_epochs(
    before: EpochRecord,
    after: EpochRecord,
    store: Store,
    work: ThreadPools,
    settings: ServiceSettings,
    now: datetime,
) -> EpochDiffOut:
    """Return the difference between the plans of epochs ``before`` and ``after``."""
    found = await read_registered(store, settings, now, await store.last_snapshot())
    compared, reason = await work.read(_compare, before, after, found, store.forms)
    names = relation_names(query.normalised for query in found.queries)
    earlier, later = set(before.queries), set(after.queries)
    return EpochDiffOut(
        epoch=after.epoch,
        queries_added=sorted(later - earlier),
        queries_removed=sorted(earlier - later),
        settings={
            name: (str(getattr(before, name)), str(getattr(after, name)))
            for name in SETTINGS
            if getattr(before, name) != getattr(after, name)
        },
        diff=None if compared is None else _named(compared, names),
        diff_reason=reason,
        reasons=None if after.reasons is None else _named_reasons(after.reasons, names),
    )


def _compare(
    before: EpochRecord, after: EpochRecord, found: Registered, forms: NormalForms
) -> tuple[DiffRecord | None, str]:
    """Return the difference of the plans, or the reason why it can't be computed."""
    try:
        one, other = decisions_of(before), decisions_of(after)
    except DecisionsError as cause:
        return None, f"the record of an epoch can't be read: {cause}"
    task = plan_task(found, forms, 0.0)
    members = [
        read_queries([q for q in found.queries if q.id in set(record.queries)], task.streams, forms)
        for record in (before, after)
    ]
    earlier, later = (queries for queries, _ in members)
    every = list({query.id: query for query in (*earlier, *later)}.values())
    task = replace(task, queries=tuple(every)).estimated()
    document = diff_document(
        diff(
            one.footprint,
            other.footprint,
            later,
            cost_model(task, later, after.parallelism, other.substreams),
            before_queries=earlier,
            before_model=cost_model(task, earlier, before.parallelism, one.substreams),
            widths=relation_widths(every, task.streams, task.widths),
        ),
        at_most=MOST,
    )
    return DiffRecord.model_validate({**document, "epoch": before.epoch}), ""


def _named(found: DiffRecord, names: Mapping[str, str]) -> DiffRecord:
    """Return ``found`` with user-facing names of steps and stores."""
    document = found.model_dump()
    for lists in (document["steps"], document["stores"]):
        for entries in lists.values():
            for entry in entries:
                entry["label"] = readable(entry["label"], names)
    document["notes"] = [readable(note, names) for note in found.notes]
    return DiffRecord.model_validate(document)


def _named_reasons(found: ReasonsRecord, names: Mapping[str, str]) -> ReasonsRecord:
    document = found.model_dump()
    for entry in (*document["shared"], *document["kept"]):
        entry["label"] = readable(entry["label"], names)
    return ReasonsRecord.model_validate(document)
