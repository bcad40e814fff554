"""Tests that messages between tasks arrive complete, once, and at the right task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from anabranch_runtime.errors import PipelineError
from anabranch_runtime.exchange import post_office
from anabranch_runtime.exchange.calls import call_options, client_of
from anabranch_runtime.exchange.post_office import Deliveries, PostOffice
from anabranch_runtime.exchange.traffic import Letter

Open = Callable[[], PostOffice]


@pytest.fixture
def office(tmp_path: Path) -> Iterator[PostOffice]:
    found = PostOffice("127.0.0.1", "secret", tmp_path / "letters")
    yield found
    found.shutdown()


def letter(number: int, rows: int = 3) -> Letter:
    found = pa.RecordBatch.from_pydict({f"c{number % 3}": list(range(rows)), "t": ["ä"] * rows})
    return Letter(("hop", f"edge-{number}"), found.replace_schema_metadata({"n": str(number)}), 9)


def test_letters_of_many_kinds_arrive_whole(office: PostOffice) -> None:
    locations = [office.location] * 2
    first, second = (Deliveries(office, "a", task, locations) for task in range(2))
    sent = [letter(n) for n in range(20)]
    assert first.send(1, sent[:12]) > 0
    first.send(1, sent[12:])
    first.settled()
    got = sorted(second.receive(), key=lambda one: int(one.address[1].split("-")[1]))
    assert [(g.address, g.of, g.rows) for g in got] == [(s.address, s.of, s.rows) for s in sent]
    assert [g.rows.schema.metadata for g in got] == [s.rows.schema.metadata for s in sent]
    assert list(second.receive()) == list(first.receive()) == []


def test_what_memory_does_not_hold_waits_in_a_file(
    office: PostOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post_office, "IN_MEMORY", 2000)
    here = Deliveries(office, "a", 0, [office.location])
    for number in range(30):
        here.send(0, [letter(number, rows=50)])
        here.settled()
    assert [one.address[1] for one in here.receive()] == [f"edge-{n}" for n in range(30)]
    here.send(0, [letter(7)])
    here.settled()
    assert len(list(here.receive())) == 1


def test_letters_of_another_attempt_are_not_read(office: PostOffice) -> None:
    old, new = (Deliveries(office, name, 0, [office.location]) for name in ("old", "new"))
    old.send(0, [letter(1)])
    old.settled()
    office.only("new")
    assert list(old.receive()) == list(new.receive()) == []


def test_a_receiver_that_has_gone_is_an_error_that_names_it(office: PostOffice) -> None:
    here = Deliveries(office, "a", 0, ["grpc://127.0.0.1:1"])
    here.send(0, [letter(1)])
    with pytest.raises(PipelineError, match=r"can't send to grpc://127\.0\.0\.1:1") as caught:
        here.settled()
    assert caught.value.code == "host-unreachable"


def test_who_has_no_token_can_not_put_anything(office: PostOffice) -> None:
    descriptor = flight.FlightDescriptor.for_path("a/0")
    options = call_options("guessed", 5.0)

    def put() -> None:
        client = client_of(office.location)
        writer, _ = client.do_put(descriptor, post_office._ENVELOPES, options)
        writer.close()

    with pytest.raises(flight.FlightUnauthenticatedError):
        put()
    assert list(Deliveries(office, "a", 0, []).receive()) == []


def test_an_address_of_another_host_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"can't listen on 203\.0\.113\.7"):
        post_office.post_office("203.0.113.7", "another", tmp_path)
