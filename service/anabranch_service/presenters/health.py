"""Health of the system: state of each component (ok, warning or failed), and since when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from anabranch_contract.protocol.intake import SourceState, StreamIntake, Unread
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.rest.planning.epochs import KeptSummary
from anabranch_contract.rest.queries import MissedOut
from anabranch_service.registry.publishing.approvals import Approvals
from anabranch_service.registry.source_status import SourceStates

OK, WARNING, FAILED = "ok", "warning", "failed"
#: Maximum number of queries with incomplete results that are listed as separate components.
NAMED = 20
_ORDER = (FAILED, WARNING, OK)
#: Reason for the rejection of tuples -> remedy.
_REJECTED = {
    "late": "a larger lateness accepts them (delete the stream, add it again with --lateness)",
    "invalid": "their values do not fit the stream's columns: correct the input or the columns",
    "ahead": "a larger ahead_of_clock or ahead_of_stream accepts them",
}


@dataclass(frozen=True, slots=True)
class Component:
    """Health of a part of the system, such as a stream or the runtime.

    Attributes:
        since: beginning of the state; None: when the service first observed it.
    """

    kind: str
    name: str
    state: str = OK
    message: str = ""
    remedy: str = ""
    since: datetime | None = None


@dataclass(slots=True)
class HealthLog:
    """Times when the current state of each component was first observed."""

    _known: dict[tuple[str, str], tuple[str, datetime]] = field(default_factory=dict)

    def dated(self, components: Iterable[Component], now: datetime) -> list[Component]:
        """Fill in the beginning of each component's state; absent components are forgotten."""
        found, known = [], dict[tuple[str, str], tuple[str, datetime]]()
        for one in components:
            key = one.kind, one.name
            state, since = self._known.get(key, (one.state, now))
            known[key] = one.state, since if state == one.state else now
            found.append(one if one.since is not None else replace(one, since=known[key][1]))
        self._known = known
        return found


def checked(kind: str, name: str, answer: str, remedy: str) -> Component:
    """Return a component from the result of its check: ``ok``, or the problem."""
    if answer == "ok":
        return Component(kind, name)
    return Component(kind, name, FAILED, answer, remedy)


def stream_components(
    records: Iterable[StreamRecord], sources: SourceStates, progress: Progress | None
) -> list[Component]:
    """Return a component per stream: whether its source is read, and no input is rejected."""
    found = []
    for record in records:
        status = sources.status(record)
        known = status.state in (SourceState.READING, SourceState.FAILED)
        since = datetime.fromtimestamp(status.since, UTC) if known and status.since else None
        error, state, remedy = status.error or "", OK, ""
        if status.state is SourceState.FAILED:
            state, remedy = (
                FAILED,
                "it is tried again automatically; the stream's page shows the source",
            )
            table = None if progress is None else progress.input.tables.get(record.name)
            if table is not None and 0 < table.version < record.version:
                error += f"; queries look up version {table.version} of its rows meanwhile"
                remedy += f"; to begin once more: anabranch stream reread {record.name}"
        elif status.state is not SourceState.READING:
            state, error = WARNING, error or f"its source is {status.state.value}"
            remedy = "it is read as soon as a runtime is running"
        elif progress is not None and (missing := _missing(record, progress)):
            state, (error, remedy), since = WARNING, missing, None
        elif progress is not None:
            error = _snapshot(progress.input.intake.get(record.name))
        found.append(Component("stream", str(record.name), state, error, remedy, since))
    return found


def _snapshot(intake: StreamIntake | None) -> str:
    """Return the message on a snapshot that is being read; empty if there is none."""
    if intake is None or intake.snapshot is None:
        return ""
    return f"{intake.snapshot.read:,} of {intake.snapshot.rows:,} rows of its snapshot are read"


def _missing(record: StreamRecord, progress: Progress) -> tuple[str, str] | None:
    """Return message and remedy for rejected or unread input of a stream; None if all was read."""
    found = [_rejected(record, progress.streams.get(record.name, {}))]
    intake = progress.input.intake.get(record.name)
    if intake is not None and intake.unread.pieces:
        found.append(
            (_left_out(intake.unread), f"all of them: anabranch stream show {record.name}")
        )
    parts = [part for part in found if part is not None]
    if not parts:
        return None
    return "; ".join(message for message, _ in parts), "; ".join(remedy for _, remedy in parts)


def _rejected(record: StreamRecord, counts: Mapping[str, int]) -> tuple[str, str] | None:
    """Return message and remedy for newly rejected tuples of a stream; None if there are none."""
    kinds = {kind: counts.get(kind, 0) for kind in _REJECTED}
    if sum(kinds.values()) <= record.accepted_rejects:
        return None
    read = counts.get("input", 0)
    parts = [f"{count:,} {kind}" for kind, count in kinds.items() if count]
    message = f"rejected {' and '.join(parts)} of {read:,} tuples"
    kept = f"they are in .late/{record.name} of the results; " if record.keep_late else ""
    remedies = "; ".join(_REJECTED[kind] for kind, count in kinds.items() if count)
    accept = f"to accept them: anabranch stream set {record.name} --accept-rejects"
    return message, f"{kept}{remedies}; {accept}"


def _left_out(unread: Unread) -> str:
    count = "1 part" if unread.pieces == 1 else f"{unread.pieces} parts"
    last = f"; the last, {unread.last[-1].source}: {unread.last[-1].reason}" if unread.last else ""
    return f"{count} of its input could not be read or changed later{last}"


def sink_components(problems: Mapping[str, str]) -> list[Component]:
    """Return one component per query whose sink rejects results."""
    remedy = "results wait, and are written as soon as the sink accepts them"
    return [
        Component("query", name, FAILED, f"its sink does not take results: {why}", remedy)
        for name, why in sorted(problems.items())
    ]


def missed_components(missed: Mapping[str, Sequence[MissedOut]]) -> list[Component]:
    """Return components of queries whose results lack earlier rows, which were not stored."""
    found = [
        Component("completeness", name, WARNING, one.message, one.remedy)
        for name, rows in sorted(missed.items())
        for one in rows[:1]
    ]
    if len(found) <= NAMED:
        return found
    more = f"and {len(found) - NAMED} more queries miss rows that were read before them"
    rest = Component("completeness", "more queries", WARNING, more, "see their pages")
    return [*found[:NAMED], rest]


def plan_component(newest: KeptSummary | None) -> Component:
    """Return the newest plan as a component, with a warning if it is a fallback."""
    if newest is None or not newest.fallback:
        return Component("plan", "newest plan")
    return Component(
        "plan",
        "newest plan",
        WARNING,
        newest.fallback,
        "another solver, more seconds or a larger memory budget may help",
    )


def approval_component(approvals: Approvals) -> list[Component]:
    """Return the held plan as a component, if it waits for an operator's approval."""
    held = approvals.held
    if held is None or not approvals.waits:
        return []
    return [
        Component(
            "plan",
            "held plan",
            WARNING,
            "a plan waits for approval",
            "look at it, and approve or refuse it: anabranch plan held",
            held.since,
        )
    ]


def worst_first(components: Iterable[Component]) -> list[Component]:
    """Sort the most urgent components first."""
    return sorted(components, key=lambda one: _ORDER.index(one.state))
