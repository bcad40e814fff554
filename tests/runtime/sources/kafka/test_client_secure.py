"""Tests of encrypted Kafka connections, logins by SCRAM and by certificates, for source
and sink.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch_contract.connectors.kafka_sources import client_settings
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_runtime.errors import SinkError, SourceError
from anabranch_runtime.sinks.kafka.writer import KafkaWriter
from anabranch_runtime.sources.blocks import read_piece
from anabranch_runtime.sources.kafka.feed import KafkaFeed, kafka_feed
from tests.support.surroundings.certificates import authority, certificate
from tests.support.surroundings.deliveries import sink, staged
from tests.support.surroundings.kafka import Topics, broker
from tests.support.surroundings.kafka_reader import Reader

VARIABLE = "ANABRANCH_SOURCE_KAFKA"
Options = dict[str, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secure")


@pytest.fixture(scope="module")
def trusted(folder: Path) -> Path:
    """Write the authority of the broker's certificate; return its path."""
    return authority(folder / "certificates")


@pytest.fixture(scope="module")
def untrusted(folder: Path) -> Path:
    return authority(folder / "others")


@pytest.fixture(scope="module")
def scram(folder: Path, trusted: Path) -> Iterator[Options]:
    """Return options of a connection with a login, whose password is in a file."""
    own = certificate(trusted, "scram")
    for found in broker(folder / "scram", {"ann": "word"}, own):
        yield {
            "brokers": found.address, "security": "sasl_ssl", "mechanism": "SCRAM-SHA-512",
            "user": "ann", "password": "word", "ca_file": str(trusted),
        }  # fmt: skip


@pytest.fixture(scope="module")
def mutual(folder: Path, trusted: Path) -> Iterator[Options]:
    """Options of a connection with a client's certificate, whose private key is in a file."""
    client = certificate(trusted, "client")
    for found in broker(folder / "mutual", certificate=certificate(trusted, "mutual")):
        yield {
            "brokers": found.address, "security": "ssl", "ca_file": str(trusted),
            "certificate_file": str(client), "private_key": client.with_suffix(".key").read_text(),
        }  # fmt: skip


def topics_of(options: Options) -> Topics:
    settings = client_settings(options)
    return Topics(settings.pop("bootstrap.servers"), **settings)


def reader(options: Options, topic: str) -> KafkaFeed:
    record = StreamRecord(
        name="s",
        columns=(ColumnRecord(name="x", type="bigint"),),
        source=SourceRecord(format="kafka", options={**options, "topics": topic}),
    )
    return kafka_feed(record, "test")


def read(feed: KafkaFeed) -> list[int]:
    start = feed.begin()
    assert feed.waiting(start).rows
    rows = list[int]()
    for piece in feed.pieces(start, feed.advance(start, 100), 1):
        for found, invalid in read_piece(piece):
            assert invalid is None
            rows += found.column("x").to_pylist()
    return rows


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Options, str], None]:
    def found(options: Options, topic: str) -> None:
        spec = sink("kafka", topic=topic, **options)
        rows = pa.record_batch({"x": [1, 2, 2]})
        KafkaWriter(f"ns-{topic}", "results").write(staged(tmp_path, "q", spec, 0, rows), "one")

    return found


@pytest.mark.parametrize(
    ("connection", "secret"), [("scram", "password"), ("mutual", "private_key")]
)
def test_a_source_reads_what_a_sink_has_written(
    connection: str, secret: str, request: pytest.FixtureRequest,
    write: Callable[[Options, str], None], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    options: Options = request.getfixturevalue(connection)
    topics = topics_of(options)
    topic = topics.make()
    for _ in range(2):
        write(options, topic)
    monkeypatch.setenv(VARIABLE, options[secret])
    referring = {**options, secret: f"${{{VARIABLE}}}"}
    assert read(reader(referring, topic)) == [1, 2, 2]
    settings = {**topics.settings}
    with Reader(settings.pop("bootstrap.servers"), topic, **settings) as found:
        found.sees(Counter([b'{"x":1}', b'{"x":2}', b'{"x":2}']))


def refusal(options: Options, topic: str, words: str) -> SourceError:
    """The error of a source; retry if a busy broker refuses later than the source's timeout."""
    deadline = time.monotonic() + 60
    while True:
        with pytest.raises(SourceError) as caught:
            reader(options, topic).begin()
        if words in caught.value.message or time.monotonic() > deadline:
            return caught.value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"password": "guessed"}, "invalid credentials"),
        ({"user": "bob"}, "invalid credentials"),
        ({"ca_file": "untrusted"}, "certificate verify failed"),
    ],
)
def test_refusals_have_their_reason(
    scram: Options, untrusted: Path, wrong: Options, words: str,
    write: Callable[[Options, str], None], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    topic = topics_of(scram).make()
    given = {**scram, **wrong}
    if "ca_file" in wrong:
        given["ca_file"] = str(untrusted)
    monkeypatch.setenv(VARIABLE, given["password"])
    of_source = refusal({**given, "password": f"${{{VARIABLE}}}"}, topic, words)
    with pytest.raises(SinkError) as of_sink:
        write(given, topic)
    for error in (of_source, of_sink.value):
        assert error.code == "no-server"
        assert words in error.message
        assert given["password"] not in str(error)
        assert error.remedy


@pytest.mark.slow
def test_a_client_without_a_certificate_is_refused(
    mutual: Options, write: Callable[[Options, str], None]
) -> None:
    topic = topics_of(mutual).make()
    given = {name: mutual[name] for name in ("brokers", "security", "ca_file")}
    assert "certificate" in refusal(given, topic, "certificate").message
    with pytest.raises(SinkError, match="certificate"):
        write(given, topic)
