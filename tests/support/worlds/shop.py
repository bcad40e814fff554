"""A pipeline between real servers (Kafka, PostgreSQL) with faults, and the comparison of all its
input with its output.

Orders and payments come from Kafka, customers from PostgreSQL; results go to Kafka, Delta, Parquet
and a webhook. Faults meet processes of ``anabranch up``, brokers, databases, tables and receivers.
The input is read from the servers in the end, since no producer knows the outcome of an interrupted
transaction. Outside readers see each result at most once at every look, and in the end exactly the
results of DuckDB's joins.

``python -m tests.support.worlds.shop --faults 300`` runs more faults than a test does.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from signal import SIGCONT, SIGSTOP
from typing import Any

import duckdb
import psycopg2
import pyarrow as pa
from confluent_kafka import KafkaException, Producer
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from anabranch_client.errors import ClientError
from scripts import kafka, postgres
from tests.support.surroundings.kafka import Topics
from tests.support.surroundings.kafka_reader import Reader
from tests.support.surroundings.postgres import rows, run, session
from tests.support.surroundings.receiver import SECRET, Fault, Webhook, receiving
from tests.support.worlds.processes import meanwhile, wait_until
from tests.support.worlds.up import Target, Up, upped

CUSTOMERS = 400
#: Pause in seconds between two transactions of the producer.
_PAUSE = 0.1
#: Seconds without new rows after which no transaction is open.
_QUIET = 1.5
_SPOILT = b"no json"
QUERIES = {
    "settled": "SELECT o.id, o.amount, p.number FROM orders o JOIN payments p ON o.id = p.order_id",
    "plain": "SELECT o.id, p.number FROM orders o JOIN payments p ON o.id = p.order_id",
    "hooked": "SELECT o.customer, p.number FROM orders o JOIN payments p ON o.id = p.order_id",
    "named": "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id",
    "totals": "SELECT c.name, count(*) AS orders, sum(o.amount) AS total FROM orders o"
    " JOIN customers c ON o.customer = c.id GROUP BY c.name",
}
Row = tuple[Any, ...]


@dataclass
class Shop:
    """The servers of the shop, the pipeline, and outside readers of its sinks.

    Attributes:
        lake: folder of the Delta tables.
        poison: messages sent that are no rows.
        done: kind of a fault -> number of faults.
    """

    up: Up
    broker: kafka.Broker
    server: postgres.Server
    webhook: Webhook
    lake: Path
    chance: Random
    poison: int = 0
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.topics = Topics(self.broker.address)
        self.names = {name: self.topics.make(2) for name in ("orders", "payments", "settled")}
        self.partitions = 2
        self._paused = threading.Event()
        self._resting = threading.Event()

    # --- input -----------------------------------------------------------------------------------

    def register(self) -> None:
        """Register the shop's streams and queries, and wait until all are active."""
        run(
            self.server,
            "CREATE TABLE shop_customers (id bigint PRIMARY KEY, name varchar(40) NOT NULL)",
            f"INSERT INTO shop_customers SELECT i, 'c' || i FROM generate_series(1, {CUSTOMERS}) i",
        )
        columns = {
            "orders": [("id", "bigint"), ("customer", "bigint"), ("amount", "decimal(10,2)")],
            "payments": [("order_id", "bigint"), ("number", "bigint")],
        }
        current = {"anabranch.table": "current", "anabranch.key": "name"}
        sinks: dict[str, dict[str, Any]] = {
            "settled": {
                "format": "kafka",
                "options": {"brokers": self.broker.address, "topic": self.names["settled"]},
            },
            "plain": {"format": "parquet"},
            "hooked": {
                "format": "webhook",
                "options": {"url": self.webhook.url, "secret": f"${{{_SECRET}}}", "timeout": "2"},
            },
            "named": {"format": "delta", "path": str(self.lake / "named")},
            "totals": {"format": "delta", "path": str(self.lake / "totals"), "options": current},
        }
        with self.up.client() as client:
            for name, wanted in columns.items():
                options = {"brokers": self.broker.address, "topics": self.names[name]}
                client.create_stream(name, wanted, source={"format": "kafka", "options": options})
            table = {"url": self.server.url, "table": "shop_customers"}
            source = {"format": "postgres", "options": table}
            client.create_stream("customers", [], source=source, kind="upsert")
            for name, sql in QUERIES.items():
                client.create_query(sql, name=name, sink=sinks[name])
            wait_until(
                "the queries to be active",
                lambda: {client.query(name).status for name in QUERIES} == {"active"},
            )

    @contextmanager
    def selling(self) -> Iterator[None]:
        """Context in which orders and payments arrive, and customers change."""
        with meanwhile(self._sell), meanwhile(self._rename):
            yield

    def _sell(self, over: threading.Event) -> None:
        """Commit transactions of orders and payments to Kafka; one of five is aborted."""
        chance, number, producer = Random(self.chance.random()), 0, None
        while not over.wait(_PAUSE):
            if self._paused.is_set():
                self._resting.set()
                continue
            try:
                if producer is None:
                    producer = self._producer("shop")
                producer.begin_transaction()
                for _ in range(chance.randrange(1, 6)):
                    order = {
                        "id": number,
                        "customer": chance.randrange(1, CUSTOMERS + 1),
                        "amount": f"{chance.randrange(1, 5000) / 100:.2f}",
                    }
                    self._send(producer, chance, "orders", order)
                    for _ in range(chance.choice((0, 1, 1, 2))):
                        payment = {"order_id": chance.randrange(max(0, number - 50), number + 5)}
                        payment["number"] = chance.getrandbits(60)
                        self._send(producer, chance, "payments", payment)
                    number += 1
                if chance.random() < 0.2:
                    producer.abort_transaction(5)
                else:
                    producer.commit_transaction(5)
            except (KafkaException, BufferError):
                # Whether the transaction was committed is read from the topics at the end.
                producer = None

    def _producer(self, name: str, timeout: int = 10_000) -> Producer:
        made = self.topics.producer(
            **{
                "transactional.id": name,
                "transaction.timeout.ms": timeout,
                "message.timeout.ms": timeout,
                "linger.ms": 0,
            }
        )
        made.init_transactions(10)
        return made

    def _send(self, producer: Producer, chance: Random, stream: str, row: dict[str, Any]) -> None:
        partitions = self.partitions if stream == "orders" else 2
        text = json.dumps(row).encode()
        producer.produce(self.names[stream], text, partition=chance.randrange(partitions))

    def _rename(self, over: threading.Event) -> None:
        """Rename, delete and insert customers in PostgreSQL."""
        chance = Random(self.chance.random())
        while not over.wait(_PAUSE):
            with suppress(psycopg2.Error), session(self.server) as cursor:
                while not over.wait(chance.random()):
                    if self._paused.is_set():
                        continue
                    one, name = chance.randrange(1, CUSTOMERS + 1), chance.randrange(500)
                    cursor.execute(
                        chance.choice(
                            (
                                f"UPDATE shop_customers SET name = 'c{name}' WHERE id = {one}",
                                f"DELETE FROM shop_customers WHERE id = {one}",
                                f"INSERT INTO shop_customers VALUES ({one}, 'n{name}')"
                                " ON CONFLICT DO NOTHING",
                            )
                        )
                    )

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Context in which no rows arrive and no transaction is open.

        A lone broker that ends within milliseconds of a commit may forget to end the transaction
        (docs/sinks.md), which readers wait for.
        """
        self._resting.clear()
        self._paused.set()
        try:
            assert self._resting.wait(60)
            wait_until("everything to be read", self._is_read)
            time.sleep(_QUIET)
            yield
        finally:
            self._paused.clear()

    def _is_read(self) -> bool:
        """Whether the pipeline runs and has read all input."""
        with suppress(ClientError, OSError, AssertionError), self.up.client() as client:
            return all(stream.waiting_tuples == 0 for stream in client.streams())
        return False

    # --- faults ----------------------------------------------------------------------------------

    def strike(self) -> str:
        """Cause a random fault, and return its kind."""
        kinds: dict[str, Callable[[], object]] = {
            **{t: lambda t=t: self.up.kill(t) for t in _TARGETS},  # type: ignore[misc]
            "broker killed": self._kill_broker,
            "broker restarted": self._restart_broker,
            "broker suspended": self._suspend_broker,
            "database killed": self._kill_database,
            "driver suspended": self._suspend,
            "table compacted": self._compact,
            "table altered": self._alter,
            "partition added": self._grow,
            "transaction left open": self._leave_open,
            "message spoilt": self._spoil,
            "receiver away": self._leave,
            "receiver fails": self._fail,
        }
        kind = self.chance.choice(list(kinds))
        kinds[kind]()
        self.done[kind] += 1
        return kind

    def _kill_broker(self) -> None:
        with self.quiet():
            self.broker.kill()
            time.sleep(self.chance.random())
            self.broker.start()

    def _restart_broker(self) -> None:
        with self.quiet():
            self.broker.stop()
            time.sleep(self.chance.random())
            self.broker.start()

    def _suspend_broker(self) -> None:
        self.broker.send(SIGSTOP)
        time.sleep(self.chance.random() * 3)
        self.broker.send(SIGCONT)

    def _kill_database(self) -> None:
        self.server.kill()
        time.sleep(self.chance.random())
        self.server.start()

    def _suspend(self) -> None:
        self.up.kill(Target.DRIVER, SIGSTOP)
        time.sleep(self.chance.random() * 3)
        self.up.kill(Target.DRIVER, SIGCONT)

    def _compact(self) -> None:
        for table in self._tables():
            # The pipeline may have committed to the table first.
            with suppress(CommitFailedError):
                table.optimize.compact()

    def _alter(self) -> None:
        for table in self._tables():
            with suppress(CommitFailedError):
                table.alter.set_table_properties({"delta.appendOnly": "false"})

    def _tables(self) -> list[DeltaTable]:
        names = self.chance.sample(("named", "totals"), self.chance.randrange(1, 3))
        paths = [str(self.lake / name) for name in names]
        return [DeltaTable(path) for path in paths if DeltaTable.is_deltatable(path)]

    def _grow(self) -> None:
        if self.partitions < 6:
            self.topics.grow(self.names["orders"], self.partitions + 1)
            self.partitions += 1

    def _leave_open(self) -> None:
        """Leave a Kafka transaction open, which the broker aborts after two seconds."""
        with suppress(KafkaException):
            producer = self._producer("zombie", 2_000)
            producer.begin_transaction()
            self._send(producer, self.chance, "orders", {"id": -1, "customer": 1, "amount": "1"})
            producer.flush(5)

    def _spoil(self) -> None:
        self.topics.push(self.names["payments"], [_SPOILT])
        self.poison += 1

    def _leave(self) -> None:
        self.webhook.stop()
        time.sleep(self.chance.random() * 3)
        self.webhook.start()

    def _fail(self) -> None:
        """Make a few requests to the webhook fail, before or after they are processed."""
        faults = self.chance.choices(_FAILURES, k=self.chance.randrange(1, 6))
        self.webhook.fault = lambda _: faults.pop() if faults else Fault.NONE

    # --- the ledger ------------------------------------------------------------------------------

    def look(self, settled: Reader) -> None:
        """Compare each sink as an outside reader finds it: no result may be there twice."""
        assert max(settled.values().values(), default=1) == 1
        assert max(self.plain().values(), default=1) == 1
        assert max(self.hooked().values(), default=1) == 1
        counts = self.named().values()
        assert not counts or (min(counts) >= 0 and max(counts) == 1), self.named().most_common(3)

    def plain(self) -> Counter[Row]:
        """Return the result rows in Parquet files."""
        files = sorted(map(str, (self.up.home / "results" / "plain").glob("*.parquet")))
        return Counter(duckdb.read_parquet(files).fetchall() if files else ())

    def hooked(self) -> Counter[Row]:
        """Return the rows that the webhook's receiver has processed, once per request id."""
        return Counter((row["customer"], row["number"]) for row in self.webhook.rows("hooked"))

    def named(self) -> Counter[Row]:
        """Return the sum of the changes in the Delta table of orders and names."""
        if not DeltaTable.is_deltatable(str(self.lake / "named")):
            return Counter()
        changes = DeltaTable(str(self.lake / "named")).to_pyarrow_table()
        found: Counter[Row] = Counter()
        for row in changes.select(["id", "name", "anabranch_change"]).to_pylist():
            sign = 1 if row["anabranch_change"] == "insert" else -1
            found[row["id"], row["name"]] += sign
        return Counter({row: count for row, count in found.items() if count})

    def totals(self) -> Counter[Row]:
        """Return the rows of the Delta table of totals."""
        table = DeltaTable(str(self.lake / "totals")).to_pyarrow_table()
        return Counter((r["name"], r["orders"], r["total"]) for r in table.to_pylist())

    def settle(self, settled: Reader) -> dict[str, int]:
        """Compare each sink with DuckDB's join of the servers' rows; return row counts by sink."""
        rights = self._rights()
        messages = Counter(
            json.dumps({"id": a, "amount": str(b), "number": c}, separators=(",", ":")).encode()
            for (a, b, c), n in rights["settled"].items()
            for _ in range(n)
        )
        seen: dict[str, Callable[[], Counter[Any]]] = {
            "settled": lambda: _spelled(settled.values()),
            "plain": self.plain,
            "hooked": self.hooked,
            "named": self.named,
            "totals": self.totals,
        }
        wanted: dict[str, Counter[Any]] = {**rights, "settled": _spelled(messages)}
        for name, found in seen.items():
            with suppress(AssertionError):
                wait_until(name, lambda f=found, n=name: f() == wanted[n], 120)  # type: ignore[misc]
            left = found()
            assert left == wanted[name], (
                f"{name}: missing {list((wanted[name] - left).items())[:3]},"
                f" too much {list((left - wanted[name]).items())[:3]}"
            )
        with self.up.client() as client:
            assert client.stream("payments").invalid_tuples == self.poison
            assert not [q.id for q in client.queries() if q.sink_problem]
            assert not [s.name for s in client.streams() if s.source_error]
        assert all(wanted.values()), wanted
        return {name: sum(found.values()) for name, found in wanted.items()}

    def _committed(self, stream: str) -> list[dict[str, Any]]:
        """Return the committed rows of a topic, when no more arrive."""
        partitions = self.partitions if stream == "orders" else 2
        with Reader(self.broker.address, self.names[stream], partitions) as reader:
            count = -1
            while not count or count < len(reader.messages):
                count = len(reader.messages)
                time.sleep(3.0)
            return [json.loads(v) for v in reader.values().elements() if v != _SPOILT]

    def _rights(self) -> dict[str, Counter[Row]]:
        """Return the expected rows: DuckDB's results over the committed messages and the table."""
        with duckdb.connect() as database:
            for name in ("orders", "payments"):
                database.register("given", pa.Table.from_pylist(self._committed(name)))
                database.execute(f"CREATE TABLE {name} AS FROM given")
            database.execute("ALTER TABLE orders ALTER amount TYPE decimal(10,2)")
            customers = rows(self.server, "SELECT id, name FROM shop_customers")
            columns = list(zip(*customers, strict=True))
            table = pa.table({"id": columns[0], "name": columns[1]})
            database.register("customers", table)
            return {n: Counter(database.execute(sql).fetchall()) for n, sql in QUERIES.items()}


_SECRET = "ANABRANCH_SINK_HOOK"
_FAILURES = (
    Fault.BUSY, Fault.ERROR, Fault.ERROR_AFTER, Fault.DROPPED, Fault.DROPPED_AFTER, Fault.SLOW,
)  # fmt: skip
_TARGETS = (
    Target.DRIVER, Target.JVM, Target.WORKER, Target.RUNTIME, Target.SERVICE, Target.REDIS,
)  # fmt: skip


def _spelled(values: Counter[bytes]) -> Counter[str]:
    """Return JSON messages in a uniform notation."""
    return Counter({
        json.dumps({k: str(v) for k, v in json.loads(value).items()}, sort_keys=True): count
        for value, count in values.items()
    })  # fmt: skip


def run_faults(
    folder: Path, broker: kafka.Broker, server: postgres.Server, faults: int, seed: int
) -> tuple[Counter[str], dict[str, int]]:
    """Run the shop through faults; return the number of faults by kind, and of results by sink."""
    chance, lake = Random(seed), folder / "lake"
    lake.mkdir(parents=True)
    with ExitStack() as stack:
        webhook = stack.enter_context(receiving())
        webhook.delay = 3.0
        options = (
            *("--port", "0", "--master", "local[2]", "--standby", "--allow-path", str(lake)),
            *("--allow-host", f"127.0.0.1:{webhook.port}"),
        )
        given = {"arguments": options, "environment": {_SECRET: SECRET}}
        up = stack.enter_context(upped(folder / "up", **given))
        shop = Shop(up, broker, server, webhook, lake, chance)
        shop.register()
        settled = stack.enter_context(Reader(broker.address, shop.names["settled"], 2))
        with shop.selling():
            for number in range(faults):
                began = time.monotonic()
                if chance.random() < 0.7:
                    up.wait_for_commits(chance.randrange(1, 4))
                time.sleep(chance.random())
                kind = shop.strike()
                shop.look(settled)
                sys.stderr.write(f"{number} {kind}: {time.monotonic() - began:.1f} s\n")
            up.wait_for_commits(2)
        return shop.done, shop.settle(settled)


def main() -> None:
    """Run faults between servers of this machine, and print the counts of faults and results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="shop-") as name,
        kafka.running(Path(name) / "kafka") as broker,
        postgres.running() as server,
    ):
        done, results = run_faults(Path(name) / "shop", broker, server, given.faults, given.seed)
    sys.stdout.write(json.dumps({"faults": done, "results": results}) + "\n")


if __name__ == "__main__":
    main()
