"""Transport of messages between tasks: each worker process receives by an Arrow Flight server.

Messages of one call have different columns, so each is an Arrow IPC message in a column of bytes.
Sending runs in the background; :meth:`Deliveries.settled` waits until the receivers have all
messages. A receiver writes messages beyond :data:`IN_MEMORY` bytes to a file.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from anabranch_runtime.errors import PipelineError
from anabranch_runtime.exchange.calls import call_options, client_of, forget_client, gate
from anabranch_runtime.exchange.traffic import Letter

#: Maximum bytes of messages that a receiver keeps in memory.
IN_MEMORY = 64 << 20
#: Maximum number of concurrent calls.
AT_ONCE = 4
#: Timeout of a call, in seconds.
PATIENCE = 600.0
_ENVELOPES = pa.schema(
    [
        ("address", pa.list_(pa.string())),
        ("of", pa.int64()),
        ("schema", pa.binary()),
        ("rows", pa.large_binary()),
    ]
)


class _Box:
    """Mailbox of a task in one attempt at a batch: messages in memory, the rest in a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._memory: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: Any = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    def put(self, envelopes: pa.RecordBatch) -> None:
        with self._lock:
            if self._writer is None and self._bytes + envelopes.nbytes <= IN_MEMORY:
                self._memory.append(envelopes)
                self._bytes += envelopes.nbytes
                return
            if self._writer is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                # An unlinked file: its disk space is freed even if the process is killed.
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
                self._writer = pa.ipc.new_stream(self._file, _ENVELOPES)
            self._writer.write_batch(envelopes)

    def take(self) -> Iterator[pa.RecordBatch]:
        with self._lock:
            memory, self._memory, self._bytes = self._memory, [], 0
            file, writer, self._file, self._writer = self._file, self._writer, None, None
        yield from memory
        if writer is not None:
            writer.close()
            file.seek(0)
            with file, pa.ipc.open_stream(file) as reader:
                yield from reader


class PostOffice(flight.FlightServerBase):  # type: ignore[misc]
    """Receives the messages for the tasks of this process.

    Attributes:
        location: the server's address for other processes.
        requests: type of a Flight action -> its handler.
    """

    def __init__(self, host: str, token: str, folder: Path) -> None:
        super().__init__(f"grpc://{host}:0", middleware=gate(token))
        self.token, self.location = token, f"grpc://{host}:{self.port}"
        self._folder = folder
        self.requests: dict[str, Callable[[bytes], bytes]] = {}
        self._boxes: dict[str, _Box] = {}
        self._lock = threading.Lock()

    def box(self, name: str) -> _Box:
        """Return the mailbox ``name``, of one task in one attempt; it is created if missing."""
        with self._lock:
            return self._boxes.setdefault(name, _Box(self._folder))

    def only(self, attempt: str) -> None:
        """Delete all mailboxes except the attempt's (``attempt``, at a batch)."""
        with self._lock:
            self._boxes = {k: v for k, v in self._boxes.items() if k.startswith(f"{attempt}/")}

    def do_put(
        self, context: Any, descriptor: flight.FlightDescriptor, reader: Any, writer: Any
    ) -> None:
        """Put the messages of a call into the mailbox that its descriptor's path names."""
        box = self.box(descriptor.path[0].decode())
        for chunk in reader:
            box.put(chunk.data)

    def do_action(self, context: Any, action: flight.Action) -> Iterator[bytes]:
        """Reply to a Flight action with the result of its handler."""
        return iter([self.requests[action.type](action.body.to_pybytes())])


_OFFICE: PostOffice | None = None


def post_office(host: str, token: str, folder: Path) -> PostOffice:
    """Return this process's server of messages, started at the first call.

    Raises:
        PipelineError: ``no-port``: the server can't listen on ``host``.
    """
    global _OFFICE
    if _OFFICE is None or _OFFICE.token != token:
        try:
            _OFFICE = PostOffice(host, token, folder)
        except (pa.ArrowException, OSError) as cause:
            raise PipelineError(
                "no-port",
                f"a task can't listen on {host}: {cause}",
                remedy="see that the executor's address (SPARK_LOCAL_IP) is one of its host's",
            ) from cause
    return _OFFICE


@dataclass(slots=True)
class Deliveries:
    """Transport of one task's messages (``traffic.Post``).

    Attributes:
        office: this process's server. ``attempt``: id of the attempt at the batch.
        locations: address of every task's server, in task order.
    """

    office: PostOffice
    attempt: str
    task: int
    locations: Sequence[str]
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(AT_ONCE, thread_name_prefix="post")
    )
    _under_way: list[Future[None]] = field(default_factory=list)

    def send(self, task: int, letters: Sequence[Letter]) -> int:
        """Begin to send messages to ``task``, and return their size in bytes.

        Raises:
            PipelineError: ``host-unreachable``: earlier messages could not be sent.
        """
        if len(self._under_way) >= AT_ONCE:
            self._under_way.pop(0).result()
        envelopes = enclosed(letters)
        self._under_way.append(self._pool.submit(self._deliver, task, envelopes))
        size: int = envelopes.nbytes
        return size

    def settled(self) -> None:
        """Wait until the receivers have all messages sent so far.

        Raises:
            PipelineError: ``host-unreachable``.
        """
        while self._under_way:
            self._under_way.pop(0).result()

    def receive(self) -> Iterator[Letter]:
        """Yield the messages that arrived since the last call."""
        for envelopes in self.office.box(f"{self.attempt}/{self.task}").take():
            yield from opened(envelopes)

    def close(self) -> None:
        """Cancel messages to other tasks that have not been sent."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _deliver(self, task: int, envelopes: pa.RecordBatch) -> None:
        location = self.locations[task]
        descriptor = flight.FlightDescriptor.for_path(f"{self.attempt}/{task}")
        options = call_options(self.office.token, PATIENCE)
        try:
            writer, _ = client_of(location).do_put(descriptor, _ENVELOPES, options)
            with contextlib.closing(writer):
                writer.write_batch(envelopes)
        except (pa.ArrowException, OSError) as cause:
            forget_client(location)
            raise PipelineError(
                "host-unreachable",
                f"a task can't send to {location}: {cause}",
                remedy="the batch is tried again without that host once Spark has noticed that it "
                "has gone; see that executors can reach each other",
            ) from cause


def enclosed(letters: Sequence[Letter]) -> pa.RecordBatch:
    """Encode messages of tasks as one record batch, with a row per message."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([list(letter.address) for letter in letters], pa.list_(pa.string())),
            pa.array([letter.of for letter in letters], pa.int64()),
            pa.array([letter.rows.schema.serialize().to_pybytes() for letter in letters]),
            _binary([letter.rows.serialize() for letter in letters]),
        ],
        schema=_ENVELOPES,
    )


def _binary(texts: Sequence[pa.Buffer]) -> pa.Array:
    """Make a binary column from buffers, a value each, copying each buffer once."""
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([text.size for text in texts], out=offsets[1:])
    joined = pa.py_buffer(b"".join(texts))
    buffers = [None, pa.py_buffer(offsets), joined]
    return pa.Array.from_buffers(pa.large_binary(), len(texts), buffers)


def opened(envelopes: pa.RecordBatch) -> Iterator[Letter]:
    """Decode the messages of tasks in a record batch, without copying their rows."""
    addresses, sizes = envelopes.column("address").to_pylist(), envelopes.column("of").to_pylist()
    schemas, texts = envelopes.column("schema").to_pylist(), envelopes.column("rows")
    for address, of, schema, text in zip(addresses, sizes, schemas, texts, strict=True):
        rows = pa.ipc.read_record_batch(text.as_buffer(), _schema(schema))
        yield Letter(tuple(address), rows, of)


@lru_cache(maxsize=4096)
def _schema(text: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(text))
