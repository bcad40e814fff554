"""Tests of protocol values as bodies of the REST API."""

from __future__ import annotations

import dataclasses
import inspect
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import product
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from anabranch_contract import protocol, rest
from anabranch_contract.body import Body, meanings
from anabranch_contract.codec import dumps, fields, loads
from anabranch_contract.protocol.intake import Unread, UnreadPiece
from anabranch_contract.protocol.measurements import EdgeStatistics, StoreStatistics
from anabranch_contract.protocol.reads import Reads
from anabranch_contract.protocol.state_report import IndexReport, LevelReport, StoreReport
from anabranch_contract.rest.documents import Document, document, read_body
from anabranch_contract.rest.planning.statistics import EdgeStatisticsOut, StatisticsOut
from anabranch_contract.rest.state import StateOut, StoreOut

PIECE = UnreadPiece("/in/a", "rows", 0, 9, 9, None, "bad-row", "it is no number", 3)
READS = Reads(probes=4, found=1, matches=2, by_time=4, filtered=6, looked=2)
STORE = StoreReport(
    store="R/1",
    mir="R",
    members=(),
    streams=("R",),
    filter=(),
    partition=None,
    partitions=1,
    batches=((0, 3),),
    growing=True,
    queries=("q",),
    rows=10,
    bytes=1000,
    index_bytes=100,
    segments=2,
    levels=(LevelReport(0, 1, 5, 600), LevelReport(1, 1, 5, 400)),
    expired_below=(None,),
    backfill=False,
    ttl=(None,),
    disk_bytes=1500,
    indexes=(IndexReport("k:int", 10, 100, 10, READS),),
)
VALUES = [
    *(READS, PIECE, Unread().and_also([PIECE]), STORE, StoreOut(**fields(STORE), reads=READS)),
    *(EdgeStatistics(3, 4, 0.5), EdgeStatisticsOut(3, predicted_sent=1.5)),
    StoreStatistics(1, 2, 3, {"k": 1.0}, {"k": READS}, "R"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_body_has_the_fields_and_properties_of_the_value(value: Body) -> None:
    adapter = TypeAdapter(type(value))
    written = json.loads(adapter.dump_json(value))
    names = {f.name for f in dataclasses.fields(value)}  # type: ignore[arg-type]
    assert written.keys() == names | value.properties().keys()
    schema = adapter.json_schema(mode="serialization")
    own = schema["$defs"].get(type(value).__name__, schema) if "$defs" in schema else schema
    assert own["properties"].keys() == written.keys()
    assert all(own["properties"][name]["description"] for name in value.properties())
    assert document(value) == written
    assert read_body(type(value), written) == value


class _Step(Document):
    """Step of a plan.

    Attributes:
        kind: ``read``: of a stream. ``cost``: of nothing else. ``label``: its name, over
            two lines.
        cost: CPU seconds; None: unknown.
    """

    kind: str
    label: str
    cost: float | None = Field(default=None, ge=0)


class _Probe(_Step):
    """Step that probes a store.

    Attributes:
        label: the store's name.
    """

    store: str = Field(description="Its id.")


def test_fields_mean_what_docstrings_say_of_them() -> None:
    # ``cost`` is documented here itself; ``label`` is not.
    own = {
        "kind": "`read`: of a stream. `cost`: of nothing else.",
        "label": "Its name, over two lines.",
        "cost": "CPU seconds; null: unknown.",
    }
    assert {name: _Step.meaning(name) for name in _Step.model_fields} == own
    schema = _Probe.model_json_schema()
    assert schema["description"] == "Step that probes a store."
    described = {name: field["description"] for name, field in schema["properties"].items()}
    assert described == own | {"label": "The store's name.", "store": "Its id."}
    assert [_Probe.meaning(name) for name in described] == [*described.values()]
    assert schema["properties"]["cost"]["anyOf"][0]["minimum"] == 0


def _kinds(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for one in kind.__subclasses__():
        yield from (one, *_kinds(one))


def test_no_field_of_an_answer_has_two_meanings() -> None:
    for package in (protocol, rest):
        for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            import_module(one.name)
    kinds = [one for one in _kinds(Document) if one.__module__.startswith(rest.__name__)]
    assert len(kinds) > 100
    twice = [
        f"{kind.__name__}.{name}"
        for kind in kinds
        for name in inspect.get_annotations(kind)
        if name in meanings(kind) and kind.model_fields[name].description
    ]
    assert twice == []


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_body_is_written_to_redis_by_its_fields_alone(value: Body) -> None:
    written = json.loads(dumps(value))
    assert written.keys() == {f.name for f in dataclasses.fields(value)}  # type: ignore[arg-type]
    assert loads(dumps(value), type(value)) == value


def test_absent_fields_are_empty_and_unknown_ones_are_passed_over() -> None:
    found = read_body(StateOut, {"epoch": 7, "colour": "red", "stores": [{"store": "R/1"}]})
    (store,) = found.stores
    assert (found.epoch, found.bytes, found.write_amplification) == (7, 0, None)
    assert (store.store, store.members, store.rows, store.reads, store.life) == (
        *("R/1", (), 0, None, Reads()),
    )
    edge = {"probes": 3, "nanoseconds": 5, "colour": "red"}
    inside = StatisticsOut.read({"epoch": 1, "edges": {"e": edge}, "colour": "red"})
    assert inside.edges == {"e": EdgeStatisticsOut(3)}
    assert inside.document()["colour"] == "red"
    documents: list[object] = [{}, {"hello": "world"}, [], {"epoch": "seven"}]
    for wrong in documents:
        with pytest.raises(ValidationError):
            read_body(StateOut, wrong)


def test_the_service_says_everything() -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(StateOut).validate_python({"epoch": 7})


def test_the_protocol_does_without_pydantic() -> None:
    names = [
        f"{protocol.__name__}.{one.name}"
        for one in pkgutil.iter_modules(protocol.__path__)
        if one.name != "registered"
    ]
    program = f"import sys, {', '.join(names)}; sys.exit('pydantic' in sys.modules)"
    assert len(names) > 10
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


#: Pairs of a protocol value and a REST body that share most of their names, and why both exist.
BOTH = {
    ("PastResults", "PastOut"): "its status is an open choice",
    ("Rationing", "RationingOut"): "rations are without bound",
    ("StreamSample", "SampleOut"): "values are summarised in the answer",
    ("TableProgress", "TableOut"): "the version to read stands beside the one looked up",
    ("ViewRows", "ViewRowsOut"): "rows are JSON texts on the wire",
}


def test_no_value_has_a_second_definition() -> None:
    found = {
        (value.__name__, body.__name__)
        for value, body in product(_classes(protocol), _classes(rest))
        if value not in body.__mro__ and _alike(_names(value), _names(body))
    }
    assert found == BOTH.keys()


def _alike(one: set[str], other: set[str]) -> bool:
    return len(one & other) >= max(3, 0.7 * max(len(one), len(other)))


def _names(kind: Any) -> set[str]:
    """Return the fields of a value; none for other classes."""
    if issubclass(kind, BaseModel):
        return set(kind.model_fields)
    if dataclasses.is_dataclass(kind):
        return {f.name for f in dataclasses.fields(kind)}
    return set(getattr(kind, "__struct_fields__", ()))


def _classes(package: ModuleType) -> list[Any]:
    return [
        kind
        for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        for _, kind in inspect.getmembers(import_module(one.name), inspect.isclass)
        if kind.__module__ == one.name
    ]
