"""A driver over real files and Redis Streams in this process, without Spark.

Batches are planned by the real source; one task reads the shares of two tasks. ``R`` is a directory
of Parquet files, ``S`` a Redis Stream, the query ``q`` joins them; the results of ``r`` and ``s``
are the rows that were read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import redis

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.protocol.intake import RECORDED, UnreadPiece
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.joins import StreamKind
from anabranch_runtime.control import Control, fetch_ruleset
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.sources.batch_input import Sources
from anabranch_runtime.sources.blocks import read_pieces
from anabranch_runtime.sources.feed import Piece, PieceError, UnreadNote
from anabranch_runtime.sources.feeds import Feeds
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.worker import run_task
from tests.support.cases.states import rules, stream
from tests.support.surroundings.policy import OPEN

KEYS = Keys("test")
QUERIES = {
    "q": "SELECT R.n AS r, S.n AS s FROM R JOIN S ON R.a = S.a",
    "r": "SELECT R.a, R.n FROM R",
    "s": "SELECT S.a, S.n FROM S",
}
STREAMS = (stream("R", "a", "n", timed=False), stream("S", "a", "n", timed=False))
#: The join key ``a``, and ``n``, a number that is unique among all rows.
Row = tuple[int, int]


class Killed(BaseException):
    """A simulated death of the process, which no code handles."""


class Fed:
    """The pipeline, with a record of its input and of the input that it reports as unread."""

    def __init__(self, url: str, home: Path, sink: SinkSpec | None = None, **options: str) -> None:
        """``sink``: sink of all queries."""
        self.url, self.home = url, home
        self.server = redis.Redis.from_url(url)
        self.options: dict[str, dict[str, str]] = {"R": {}, "S": {}}
        self.registered = {"R", "S"}
        #: Stream -> microseconds for which it is retained; None: for ever.
        self.retain: dict[str, int | None] = {}
        #: Stream -> its registration, if it was registered again.
        self.registration: dict[str, str] = {}
        #: Stream -> its columns whose type was widened, with their first types.
        self.widened: dict[str, tuple[tuple[str, str], ...]] = {}
        self.tables: set[str] = set()
        self.columns = dict.fromkeys("RS", (("a", "bigint"), ("n", "bigint")))
        #: Name of a file -> its rows; id of an entry -> its row.
        self.files: dict[str, list[Row]] = {}
        self.entries: dict[str, Row] = {}
        self.removed: set[str] = set()
        #: Id of a feed -> its stream, and all pieces of it ever recorded as unread.
        self._records: dict[str, tuple[str, list[UnreadPiece]]] = {}
        self.rows = 0
        #: Function called when a batch has been planned, before it runs.
        self.between: Callable[[], None] = lambda: None
        (home / "R").mkdir(parents=True)
        made = rules(0, QUERIES, streams=STREAMS)
        specs = tuple(replace(query, sink=sink or query.sink) for query in made.queries)
        document = rulesets.dumps(replace(made, queries=specs))
        self.server.set(KEYS.ruleset(0), document)
        self.server.zadd(KEYS.published, {"0": 0})
        self.start()

    # --- input ---------------------------------------------------------------------------------

    def new_rows(self, keys: list[int]) -> list[Row]:
        """Return rows with new numbers."""
        self.rows += len(keys)
        return [(a, self.rows - i) for i, a in enumerate(keys)]

    def file(self, name: str, keys: list[int]) -> Path:
        """Write a file for ``R``, with checksums of its pages."""
        rows = self.files[name] = self.new_rows(keys)
        path = self.home / "R" / name
        columns = {"a": [a for a, _ in rows], "n": [n for _, n in rows]}
        partial = path.with_name(f".{name}")
        pq.write_table(
            pa.table(columns),
            partial,
            row_group_size=7,
            write_page_checksum=True,
            compression=None,
            use_dictionary=False,
        )
        os.utime(partial, ns=(0, 10**9 * len(self.files)))
        partial.rename(path)
        return path

    def has_results(self, query: str, count: int) -> bool:
        """Whether ``query`` has at least ``count`` results."""
        return len(self.results(query)) >= count

    def has_batches(self, count: int) -> bool:
        """Whether at least ``count`` batches are committed."""
        return self.driver.state.next_batch >= count

    def push(self, keys: list[int]) -> None:
        """Add entries to ``S``."""
        for a, n in self.new_rows(keys):
            entry: Any = self.server.xadd(KEYS.stream("S"), {"data": json.dumps({"a": a, "n": n})})
            self.entries[entry.decode()] = (a, n)

    def remove(self, entries: list[str]) -> None:
        """Remove entries from the Redis Stream."""
        if entries:
            self.server.xdel(KEYS.stream("S"), *entries)
        self.removed |= set(entries)

    # --- the pipeline --------------------------------------------------------------------------

    def start(self) -> None:
        """Start the runtime, or kill it and start it again."""
        settings = DriverSettings(
            self.home / "state",
            self.home / "results",
            epoch_seconds=3600.0,
            mode=Mode.LIVE,
            patience=5.0,
            target_latency=None,
        )
        settings.state.mkdir(parents=True, exist_ok=True)
        self.driver = Driver(settings, Control(self.url, "test"))
        self.driver.announce()
        self.read_anew()

    def source(self, name: str, options: dict[str, str]) -> SourceRecord:
        """Return the source of a stream."""
        return SourceRecord(
            format="files" if name == "R" else "redis-stream",
            path=str(self.home / "R") if name == "R" else None,
            options=options,
            rows_per_batch=60,
        )

    def read_anew(self) -> None:
        """Open the sources again, as after changes of streams."""
        records = [
            StreamRecord(
                name=name,
                columns=tuple(ColumnRecord(name=c, type=t) for c, t in self.columns[name]),
                source=self.source(name, options),
                retain=self.retain.get(name, 0),
                registration=self.registration.get(name, ""),
                widened=self.widened.get(name, ()),
                kind=StreamKind.TABLE if name in self.tables else StreamKind.STREAM,
            )
            for name, options in self.options.items()
            if name in self.registered
        ]
        self.control = self.driver.progress.rate_limiter.input
        state = str(self.home / "state")
        self.reader = Feeds(records, 2, self.url, "test", state, OPEN, self.control)
        feeds = frozenset(self.reader.feeds)
        self.driver.read(Sources({"feeds": self.reader}, 2, tuple(records), feeds))

    def change(self, stream: str, **options: str) -> None:
        """Change a stream's options."""
        self.options[stream] = options
        self.read_anew()

    def turn(self) -> bool:
        """Plan a batch and run it, or repeat the one that was begun; False if there is none."""
        offsets = self.driver.plan()
        if offsets is None:
            return False
        between, self.between = self.between, lambda: None
        between()
        self.driver.run(self._job, offsets)
        self._account()
        return True

    def drain(self) -> None:
        """Run batches until nothing changes any more; held sources stay held."""
        idle = 0
        while idle < 4:
            before = self._stand()
            self.turn()
            idle = idle + 1 if self._stand() == before else 0

    def _stand(self) -> object:
        state = self.driver.state
        read = {name: s.input for name, s in state.streams.items()}
        return read, {i: (f.unread.pieces, f.held is None) for i, f in state.feeds.items()}

    def _job(self, context: BatchContext) -> list[TaskReport]:
        unread: list[UnreadNote] = []

        def failed(piece: Piece, why: PieceError) -> None:
            unread.append(UnreadNote(piece.number, why))

        known = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
        blocks = read_pieces(chain(*context.input.shares), failed)
        report = run_task(context, known, blocks, task=0, tasks=1, exchange=lambda m: [m])
        report.unread = unread
        return [report]

    # --- the account ---------------------------------------------------------------------------

    def _account(self) -> None:
        """Record the input that the last commit reports as unread."""
        for identity, feed in self.driver.state.feeds.items():
            _, known = self._records.setdefault(identity, (feed.stream, []))
            # The newest piece may have become longer.
            known[max(feed.unread.pieces - RECORDED, 0) :] = feed.unread.last
            assert len(known) == feed.unread.pieces

    @property
    def recorded(self) -> list[tuple[str, UnreadPiece]]:
        """Return pieces recorded as unread, each with its stream."""
        return [(stream, piece) for stream, known in self._records.values() for piece in known]

    def _recorded(self, stream: str) -> list[Row]:
        """Return the rows of ``R`` that are recorded as unread."""
        rows: list[Row] = []
        for name, piece in self.recorded:
            if name == stream:
                assert isinstance(piece.first, int)
                assert not isinstance(piece.last, str)
                found = self.files[Path(piece.source).name][piece.first : piece.last]
                assert piece.rows in (None, len(found))
                rows += found
        assert len(set(rows)) == len(rows), "recorded twice"
        return rows

    @property
    def found(self) -> set[str]:
        """Return the names of the files that the pipeline has found."""
        logs = (self.home / "state" / "files").glob("*.jsonl")
        lines = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
        return {line[0] for line in lines if isinstance(line, list)}

    def held(self, stream: str) -> str | None:
        """Return why a stream is held; None: it is not."""
        feeds = [f for f in self.driver.state.feeds.values() if f.stream == stream]
        return next((f.held.error for f in feeds if f.held is not None), None)

    def results(self, query: str = "q") -> list[Row]:
        """Return the results of a query, sorted."""
        files = sorted(map(str, (self.home / "results" / query).glob("*.parquet")))
        return sorted(duckdb.read_parquet(files).fetchall()) if files else []

    def check(self) -> None:
        """Check that every row was read once or is recorded as unread, and that the join is
        correct.
        """
        sent = {"R": list(chain(*self.files.values())), "S": list(self.entries.values())}
        read = {"R": self.results("r"), "S": self.results("s")}
        for name, rows in read.items():
            assert len(set(rows)) == len(rows), "read twice"
            assert set(rows) <= set(sent[name])
            assert self.driver.state.streams[name].input == len(rows)
        assert sorted(read["R"] + self._recorded("R")) == sorted(sent["R"])
        unread = set(sent["S"]) - set(read["S"])
        assert unread <= {self.entries[e] for e in self.removed}
        assert sum(p.entries or 0 for name, p in self.recorded if name == "S") == len(unread)
        partners: dict[int, list[int]] = {}
        for a, n in read["S"]:
            partners.setdefault(a, []).append(n)
        expected = sorted((n, s) for a, n in read["R"] for s in partners.get(a, ()))
        assert self.results() == expected


def damage(path: Path, groups: Iterable[int] = (0,)) -> None:
    """Flip a byte in a page of each row group in ``groups``, so that its checksum is wrong; size
    and time of the file do not change.
    """
    stat = path.stat()
    content = bytearray(path.read_bytes())
    for group in groups:
        chunk = pq.read_metadata(path).row_group(group).column(0)
        content[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 0xFF
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
