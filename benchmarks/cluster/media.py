"""Cost of two ways to send bytes between tasks on three hosts: Arrow Flight, and Spark's shuffle.

`python -m benchmarks.cluster.media [--json] [--hosts 3] [--rounds 10] [--sizes 0 1000000 16000000]`

In a round each task sends `--sizes` bytes to each of the others and reads what it receives. With
Flight, all rounds are within one barrier stage, and a round ends with an all-gather at the driver
(`anabranch_runtime.exchange`). With the shuffle, a round is a stage: rows go through the JVM of
their executor into files, and from there to the next stage's task. Spark's ``local-cluster`` runs
the executors, on one machine, so bytes go through the loopback interface. Runs with either way
alternate. CPU time is that of all processes. A round of Flight with 0 bytes is only the all-gather.

*Compression* would save bytes, but cost CPU time of sender and receiver. It is measured with
messages of 20,000 partial results of two kinds, as Arrow writes and reads them. A network of 1 Gb/s
takes 8 ns per byte, one of 10 Gb/s 0.8 ns.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa

from anabranch_client.processes.meter import cpu_seconds, tree
from anabranch_runtime.exchange.lines import TaskListener
from anabranch_runtime.exchange.stage import Stage
from anabranch_runtime.spark.session import free_slots, one_each, spark_session
from benchmarks.command import Benchmark, run_benchmark, spread
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from anabranch_runtime.exchange.lines import DriverAddress

    #: Receiver, bytes that the sender has received so far, and content.
    Message = tuple[int, tuple[int, bytes]]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, default=3, help="executors")
    parser.add_argument("--rounds", type=int, default=10, help="of one job")
    parser.add_argument("--repeats", type=int, default=5, help="jobs of each medium and size")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[0, 1_000_000, 16_000_000], help="bytes to each"
    )


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Return seconds and CPU seconds of a round, by size and medium."""
    session = spark_session(f"local-cluster[{options.hosts},1,1024]")
    while free_slots(session) < options.hosts:
        time.sleep(0.1)
    listener = TaskListener("127.0.0.1")
    ways: dict[str, Callable[[int, int], int]] = {
        "flight": lambda size, rounds: _by_flight(session, listener, options.hosts, size, rounds),
        "shuffle": lambda size, rounds: _by_shuffle(session, options.hosts, size, rounds),
    }
    found: dict[str, Any] = {}
    try:
        for size in options.sizes:
            seconds: dict[str, list[float]] = {name: [] for name in ways}
            cpu: dict[str, list[float]] = {name: [] for name in ways}
            for number in range(options.repeats + 1):
                for name in list(ways)[:: 1 if number % 2 == 0 else -1]:
                    taken, worked = _timed(ways[name], size, options.rounds)
                    wanted = size * options.hosts * (options.hosts - 1) * options.rounds
                    assert taken.pop() == wanted, "bytes have been lost"
                    if number:
                        seconds[name].append(taken[0])
                        cpu[name].append(worked)
            found[str(size)] = {
                name: {"seconds": spread(seconds[name], 5), "cpu": spread(cpu[name], 5)}
                for name in ways
            }
            tell(f"{size} bytes: {found[str(size)]}")
    finally:
        listener.close()
        session.stop()
    return {"rounds": found, "compression": _compression()}


def _timed(work: Callable[[int, int], int], size: int, rounds: int) -> tuple[list[Any], float]:
    """Run ``work``; return [seconds per round (with a share of a job's fixed time), bytes
    received], and CPU seconds per round.
    """
    before, began = _cpu(), time.perf_counter()
    received = work(size, rounds)
    seconds = (time.perf_counter() - began) / rounds
    return [seconds, received], (_cpu() - before) / rounds


def _cpu() -> float:
    return cpu_seconds(tree([psutil.Process().pid]))


def _by_flight(
    session: SparkSession, listener: TaskListener, hosts: int, size: int, rounds: int
) -> int:
    address = listener.address

    def run(stage: str) -> None:
        def work(_: Iterable[int]) -> Iterator[int]:
            yield from _exchange(address, stage, size, rounds)

        one_each(session, hosts).barrier().mapPartitions(work).collect()

    stage = Stage(listener, hosts, run, lambda _: None)
    found: list[int] = stage.run("rounds")
    stage.close(cancel=False)
    return sum(found)


def _exchange(address: DriverAddress, stage: str, size: int, rounds: int) -> Iterator[int]:
    from pathlib import Path

    from anabranch_runtime.exchange.lines import call_driver
    from anabranch_runtime.exchange.post_office import Deliveries, post_office
    from anabranch_runtime.exchange.traffic import Letter
    from anabranch_runtime.spark.job import barrier_task

    task, hosts = barrier_task()
    office = post_office(hosts[task], address.token, Path("letters"))
    office.only(stage)
    line = call_driver(address, stage, task, hosts)
    line.next_order()
    post = Deliveries(office, stage, task, line(office.location))
    rows = pa.RecordBatch.from_arrays([pa.array(np.zeros(size // 8, np.int64))], names=["x"])
    received = 0
    for _ in range(rounds):
        for other in range(len(hosts)) if size else ():
            if other != task:
                post.send(other, [Letter(("x",), rows, rows.num_rows)])
        post.settled()
        line("")
        received += sum(letter.rows.nbytes for letter in post.receive())
    post.close()
    line.report(received)
    line.next_order()
    yield from ()


def _by_shuffle(session: SparkSession, hosts: int, size: int, rounds: int) -> int:
    def send(number: int, messages: Iterable[Message]) -> Iterator[Message]:
        received = 0
        for _, (before, text) in messages:
            received += before + len(text)
        content = bytes(size)
        for other in range(hosts):
            if other != number:
                # One of the messages also carries the number of bytes that the task received in
                # earlier rounds.
                last = other == (number + 1) % hosts
                yield other, (received if last else 0, content)

    def begin(number: int, _: Iterable[int]) -> Iterator[Message]:
        return send(number, ())

    frame = one_each(session, hosts).mapPartitionsWithIndex(begin)
    for number in range(rounds):
        frame = frame.partitionBy(hosts, lambda key: key)
        if number + 1 < rounds:
            frame = frame.mapPartitionsWithIndex(send)
    return sum(frame.map(lambda one: one[1][0] + len(one[1][1])).collect())


#: Number of partial results in the message whose compression is measured, and number of
#: repetitions.
_ROWS, _TIMES = 20_000, 50


def _compression() -> dict[str, dict[str, dict[str, float]]]:
    """Map kind of rows and codec to the compressed share of bytes, and CPU nanoseconds per byte."""
    draw = np.random.default_rng(7)
    arrivals = np.sort(draw.integers(0, 10**9, _ROWS)) << 20
    keys, numbers = draw.integers(0, 8000, _ROWS), np.sort(draw.integers(0, 10**7, _ROWS))
    names = [f"Customer#{number:09d}" for number in draw.integers(0, 15_000, _ROWS)]
    kinds = {
        "a key, a number": pa.record_batch({"k": keys, "n": numbers, "#sigma": arrivals}),
        "a key, a name": pa.record_batch({"k": keys, "c": names, "#sigma": arrivals}),
    }
    return {
        kind: {c: _compressed(rows, c) for c in ("lz4", "zstd")} for kind, rows in kinds.items()
    }


def _compressed(rows: pa.RecordBatch, codec: str) -> dict[str, float]:
    options = pa.ipc.IpcWriteOptions(compression=codec)
    written = rows.serialize()
    before = time.process_time()
    for _ in range(_TIMES):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
            writer.write_batch(rows)
        written = sink.getvalue()
        pa.ipc.open_stream(written).read_all()
    taken = (time.process_time() - before) / _TIMES
    return {
        "left": round(written.size / rows.nbytes, 3),
        "ns": round(1e9 * taken / rows.nbytes, 2),
    }


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables: a row per size and medium, and a row per codec."""
    rows = []
    hosts = entry["settings"]["hosts"]
    for size, media in entry["rounds"].items():
        sent = int(size) * hosts * (hosts - 1)
        for name, one in media.items():
            rate = sent / one["seconds"]["median"] / 1e6
            rows.append(
                (
                    f"{int(size) / 1e6:g}",
                    name,
                    shown(one["seconds"], 1, unit=1e-3),
                    shown(one["cpu"], 1, unit=1e-3),
                    f"{rate:,.0f}" if sent else "–",
                    f"{1e9 * one['cpu']['median'] / sent:.2f}" if sent else "–",
                )
            )
    head = ("MB to each", "medium", "round, ms", "CPU of a round, ms", "MB/s of all", "CPU ns/byte")
    grids = [Grid(f"a round of {hosts} hosts", head, tuple(rows), texts=2)]
    # Lines saved before compression was measured have no codecs.
    codecs = [
        (kind, codec, f"{one['left']:.2f}", f"{one['ns']:.1f}")
        for kind, several in entry.get("compression", {}).items()
        for codec, one in several.items()
    ]
    if codecs:
        names = ("partial results", "codec", "left of a byte", "CPU ns/byte")
        grids.append(Grid("compression", names, tuple(codecs), texts=2))
    return grids


BENCHMARK = Benchmark("media", (__doc__ or "").split("\n", 1)[0], _options, measure, tables)


if __name__ == "__main__":
    sys.exit(run_benchmark("cluster", BENCHMARK, None, lambda _: None))
