"""Tests that stored and exchanged formats do not change without a new version (ADR 0056).

``formats.json`` has version and digest of each format, and whether a release has written it. The
digest is of the declared fields: names, types and order, not docstrings or class names. ``python -m
tests.test_formats`` renews the digests of formats that no release has written.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import importlib
import json
import pkgutil
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

import anabranch_contract
import anabranch_runtime
from anabranch_contract.codec import Message
from anabranch_contract.plans import batch_reads, patches, ruleset
from anabranch_contract.plans.rations import PaidBatches, RationedBatches
from anabranch_contract.protocol import progress
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.rest.access import AuditRecord
from anabranch_contract.rest.planning.epochs import KeptSummary
from anabranch_contract.rest.planning.settings import PlanningSettings
from anabranch_planner.plans import decisions
from anabranch_runtime.recovery import journal, rulesets
from anabranch_runtime.sources.ingest import landing
from anabranch_runtime.sources.recordings import recording
from anabranch_runtime.state import manifest
from anabranch_runtime.storage import durable, segment
from anabranch_runtime.storage.documents import Kind
from anabranch_service.access.tokens import TokenRecord
from anabranch_service.registry import records
from anabranch_service.registry.publishing import approvals, history

TABLE = Path(__file__).with_name("formats.json")
#: Formats with separate versions: version, and the types that are read and written.
FORMATS: dict[str, tuple[int, tuple[Any, ...]]] = {
    "ruleset": (ruleset.VERSION, (ruleset.Ruleset,)),
    "patch": (patches.VERSION, (patches.Patch,)),
    "input of a batch": (batch_reads.VERSION, (batch_reads.BatchReads,)),
    "decisions": (decisions.VERSION, (decisions.Decisions,)),
    "pack": (segment.VERSION, (segment.Segment,)),
    "manifest": (manifest.KIND.version, (manifest.State, manifest.Commit)),
    "journal": (journal.KIND.version, (journal.JournalEntry,)),
    "kept ruleset": (rulesets.KIND.version, (ruleset.Ruleset, patches.Patch)),
    "landed batch": (landing.KIND.version, (landing.Landed,)),
    "recording": (recording.KIND.version, (recording.Recording,)),
    "origin": (durable.ORIGIN.version, (str,)),
    # Also covers the small files beside results.
    "identity": (durable.IDENTITY.version, (str, RationedBatches, PaidBatches, ruleset.QuerySpec)),
}
#: Records of the service in Redis.
RECORDS = (
    *(StreamRecord, records.QueryRecord, PlanningSettings, records.EpochRecord),
    *(records.PlanDetails, records.Explanation, records.KeptRevision, KeptSummary),
    *(approvals.HeldPlan, approvals.Refusals, history.HistoryPoint, TokenRecord, AuditRecord),
)

#: Names that the modules of these types import for type checkers only.
_FOR_CHECKERS = {"Prefixes": Mapping[str, tuple[int, int]]}


def modules(package: types.ModuleType) -> Iterator[types.ModuleType]:
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def messages() -> tuple[type[Message], ...]:
    list(modules(anabranch_contract))
    found = (kind for kind in Message.__subclasses__() if kind.__module__.startswith("anabranch_"))
    return tuple(sorted(found, key=lambda kind: kind.__name__))


def shape(kind: Any, above: tuple[Any, ...] = ()) -> Any:
    """The structure of a type as JSON; a type within itself is the number of steps up to it."""
    if kind in above:
        return above[::-1].index(kind) + 1
    inside = (*above, kind)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return shape(parts[0], above)
    if origin is typing.Literal:
        return ["literal", *map(str, parts)]
    if origin is not None:
        name = "union" if origin in (typing.Union, types.UnionType) else origin.__name__
        return [name, *("..." if part is ... else shape(part, inside) for part in parts)]
    if isinstance(kind, typing.NewType):
        return shape(kind.__supertype__, above)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return ["enum", *sorted(str(member.value) for member in kind)]
    fields = dict(_fields(kind))
    if not fields:
        return getattr(kind, "__name__", str(kind))
    return {name: shape(part, inside) for name, part in fields.items()}


def _fields(kind: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield from ((name, found.annotation) for name, found in kind.model_fields.items())
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield "", typing.Literal[kind.__struct_config__.array_like, kind.__struct_config__.tag]
        yield from ((found.encode_name, found.type) for found in msgspec.structs.fields(kind))
    elif dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind, None, _FOR_CHECKERS, include_extras=True)
        yield from ((found.name, hints[found.name]) for found in dataclasses.fields(kind))
    elif isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        yield from typing.get_type_hints(kind).items()


def digest(kinds: tuple[Any, ...]) -> str:
    text = json.dumps([shape(kind) for kind in kinds])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def formats() -> dict[str, tuple[int, str]]:
    found = {name: (version, digest(kinds)) for name, (version, kinds) in FORMATS.items()}
    return {**found, "Redis": (progress.VERSION, digest((*messages(), *RECORDS)))}


def complaint(name: str, known: dict[str, Any] | None, version: int, found: str) -> str | None:
    """Return why a format does not agree with its entry of the table; None if it does."""
    if known is not None and (known["version"], known["digest"]) == (version, found):
        return None
    if known is not None and known["released"] and version <= known["version"]:
        return f"{name} has another shape than a release wrote: raise its version (ADR 0056)"
    return f"{name} has another shape: run python -m tests.test_formats, and review formats.json"


@pytest.mark.parametrize("name", [*FORMATS, "Redis"])
def test_a_shape_changes_with_its_version_only(name: str) -> None:
    assert complaint(name, json.loads(TABLE.read_text()).get(name), *formats()[name]) is None


def test_the_table_has_these_formats_only() -> None:
    assert list(json.loads(TABLE.read_text())) == list(formats())


def test_every_kind_of_document_is_in_the_table() -> None:
    kinds = {
        (kind.noun, kind.version)
        for module in modules(anabranch_runtime)
        for kind in vars(module).values()
        if isinstance(kind, Kind)
    }
    listed = (*(m.KIND for m in (manifest, journal, rulesets, landing, recording)),)
    listed += (durable.ORIGIN, durable.IDENTITY)
    assert kinds == {(kind.noun, kind.version) for kind in listed}


def _with_a_field(before: type) -> type:
    return dataclasses.make_dataclass("Any", [("more", int)], bases=(before,), frozen=True)


def _in_another_order(before: type) -> type:
    class Row(msgspec.Struct, array_like=True):
        b: int
        a: str

    return Row


@dataclasses.dataclass(frozen=True)
class Plain:
    a: str
    b: int


class Row(msgspec.Struct, array_like=True):
    a: str
    b: int


@pytest.mark.parametrize(
    ("before", "change"), [(Plain, _with_a_field), (Row, _in_another_order), (Row, lambda _: Plain)]
)
def test_a_change_of_fields_is_noticed(before: type, change: Callable[[type], type]) -> None:
    known = {"version": 1, "digest": digest((before,)), "released": False}
    after = digest((change(before),))
    assert complaint("x", known, 1, digest((before,))) is None
    assert "formats.json" in str(complaint("x", known, 1, after))
    assert "raise its version" in str(complaint("x", {**known, "released": True}, 1, after))
    assert "formats.json" in str(complaint("x", {**known, "released": True}, 2, after))


def renewed(known: dict[str, Any]) -> dict[str, Any]:
    """Return the table with the present shapes.

    Raises:
        SystemExit: a format that a release has written would change without its version.
    """
    table = {}
    for name, (version, found) in formats().items():
        why = complaint(name, known.get(name), version, found)
        if why is not None and "raise" in why:
            raise SystemExit(why)
        released = why is None and known[name]["released"]
        table[name] = {"version": version, "digest": found, "released": released}
    return table


if __name__ == "__main__":
    before = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    TABLE.write_text(json.dumps(renewed(before), indent=1) + "\n")
