"""Flink jobs (statement sets): their files, the JVM that runs them, CPU time, and results.

One JVM is the whole cluster: client, job manager and one task manager, without service, REST server
or network between them. Only sinks write to disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract.queries.views import CHANGE, Change
from benchmarks.rivals.environment import Environment, RivalError, Spent, java_program, output

ENVIRONMENT = Environment("flink", "apache-flink-libraries")
#: Class path of the Java sources and of the JVM, besides the environment's jars.
CLASSPATH = "{packages}/pyflink/lib/*"
#: Packages of the JDK that Flink opens by reflection.
_OPENED = ("java.lang", "java.nio", "java.time", "java.util", "sun.nio.ch")
_LOGGING = """rootLogger.level = ERROR
rootLogger.appenderRef.console.ref = Console
appender.console.name = Console
appender.console.type = CONSOLE
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c %m%n%throwable
"""


class Mode(StrEnum):
    """Settings of Flink that differ between runs of a benchmark."""

    ROWS = "row by row"
    MINI_BATCH = "mini-batch"
    DURABLE = "durable"


#: Kinds of sinks: files of changes, or Flink's ``blackhole``, which drops rows.
_FILES, _NOTHING = "changes", "blackhole"
_MODES: Mapping[Mode, Mapping[str, str]] = {
    Mode.ROWS: {},
    Mode.MINI_BATCH: {
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "1 s",
        "table.exec.mini-batch.size": "5000",
    },
    Mode.DURABLE: {
        "execution.checkpointing.interval": "2 s",
        "execution.checkpointing.dir": "file://{home}/checkpoints",
        "execution.checkpointing.storage": "filesystem",
    },
}


@dataclass(frozen=True, slots=True)
class Jvm:
    """Options of the JVM, and settings of Flink that are the same in all runs.

    Attributes:
        parallelism: parallelism of every operator.
        backend: state backend, ``hashmap`` or ``rocksdb``.
        heap: size of the heap, as for ``-Xmx``.
    """

    parallelism: int = 2
    backend: str = "hashmap"
    heap: str = "6g"

    def configuration(self, mode: Mode, home: Path) -> dict[str, str]:
        """Return Flink's configuration for jobs with files in ``home``."""
        return {
            "parallelism.default": str(self.parallelism),
            "pipeline.object-reuse": "true",
            "state.backend.type": self.backend,
            "table.local-time-zone": "UTC",
            "taskmanager.memory.managed.size": "512m",
            "taskmanager.memory.network.min": "256m",
            "taskmanager.memory.network.max": "256m",
            **{name: value.format(home=home) for name, value in _MODES[mode].items()},
        }

    def command(self, *arguments: str) -> list[str]:
        """Return the command that runs the driver program."""
        path = (
            str(ENVIRONMENT.classes),
            CLASSPATH.format(packages=ENVIRONMENT.packages),
            f"{ENVIRONMENT.jars}/*",
        )
        opened = [f"--add-opens=java.base/{one}=ALL-UNNAMED" for one in _OPENED]
        # The garbage collector that takes the least CPU time here.
        options = [f"-Xmx{self.heap}", "-XX:+UseParallelGC", *opened]
        logging = "-Dlog4j.configurationFile=log4j2.properties"
        return [
            *(java_program("java"), *options, logging, "-cp", os.pathsep.join(path)),
            *("Driver", *arguments),
        ]


def write_input(streams: Mapping[str, pa.Table], folder: Path, *, files: int, part: float) -> None:
    """Write the first rows of each stream to ``files`` interleaved Parquet files, one per reader.

    Args:
        streams: stream -> its rows.
        folder: parent of a folder for each stream.
        files: number of files.
        part: share of each stream's rows.
    """
    for name, rows in streams.items():
        table = rows.slice(0, round(rows.num_rows * part))
        below = folder / name
        below.mkdir(parents=True)
        for number in range(files):
            chosen = table.take(pa.array(np.arange(number, table.num_rows, files)))
            pq.write_table(chosen, below / f"{number}.parquet")


@dataclass(frozen=True, slots=True)
class Job:
    """Input of a Flink JVM: one or several statement sets to run.

    Attributes:
        home: folder of its files.
        mode: Flink's settings.
        sets: name of a statement set -> query -> statement.
    """

    home: Path
    mode: Mode
    sets: Mapping[str, Mapping[str, str]]

    def write(self, tables: Mapping[str, str], jvm: Jvm) -> None:
        """Write all files of the job; ``tables``: table -> its CREATE statement."""
        _write(self.home / "tables", tables)
        for name, queries in self.sets.items():
            _write(self.home / name, queries)
        lines = (f"{k}={v}\n" for k, v in jvm.configuration(self.mode, self.home).items())
        (self.home / "flink.properties").write_text("".join(lines), encoding="utf-8")
        (self.home / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")

    def run(self, jvm: Jvm, *, times: int = 1, checked: bool = False) -> list[Spent]:
        """Run every statement set ``times`` times in a new JVM.

        Args:
            checked: whether to write the changes of results to files, in every mode.

        Returns:
            Resource usage of the process up to the first run, and up to the end of each run.

        Raises:
            RivalError: a job failed.
        """
        connector = _FILES if checked or self.mode is Mode.DURABLE else _NOTHING
        sets = [name for name in self.sets for _ in range(times)]
        return usage(output(jvm.command(str(self.home), connector, *sets), self.home))

    def answer(self, name: str, query: str) -> Path:
        """Return the folder with the changes of a query's result in the set ``name``."""
        return self.home / "answers" / name / query


def usage(printed: str) -> list[Spent]:
    r"""Parse the usage that the driver program printed.

    >>> usage("a line of the JVM\nused\t0.5 0.25 4096\t12.25 7 8192\n")
    [Spent(cpu=0.5, seconds=0.25, bytes=4096), Spent(cpu=12.25, seconds=7.0, bytes=8192)]

    Raises:
        RivalError: the program printed no usage.
    """
    for line in printed.splitlines():
        kind, *marks = line.split("\t")
        if kind == "used":
            return [Spent.read(mark) for mark in marks]
    raise RivalError(f"Flink printed no CPU time:\n{printed}")


class Inputs:
    """Two inputs as files: all rows of some streams, and only their first rows.

    Args:
        streams: stream -> its rows.
        home: parent of a folder for each of the two inputs.
        files: number of files of a stream.
        first: share of rows in the second input.
    """

    def __init__(
        self, streams: Mapping[str, pa.Table], home: Path, *, files: int, first: float
    ) -> None:
        self.every, self.first = home / "every", home / "first"
        write_input(streams, self.every, files=files, part=1.0)
        write_input(streams, self.first, files=files, part=first)

    def marks(self, jvm: Jvm, job: Callable[[Path], Job]) -> tuple[list[Spent], list[Spent]]:
        """Return the usages of two runs over all rows, and of two runs over the first rows.

        Args:
            jvm: options of the JVM.
            job: function from an input's folder to the job.

        Raises:
            RivalError: a job failed.
        """
        found = []
        for folder in (self.every, self.first):
            made = job(folder)
            found.append(made.run(jvm, times=2))
            shutil.rmtree(made.home)
        return found[0], found[1]


#: Part of a job's usage -> its title in tables.
PARTS = {"live": "from the second batch", "warm": "warm", "whole": "whole process"}


def parts(every: Sequence[Spent], first: Sequence[Spent]) -> dict[str, Spent]:
    """Return the usage by :data:`PARTS`, from the usages of two processes with two runs each.

    >>> parts([Spent(1, 1, 9), Spent(21, 11, 9), Spent(36, 16, 9)],
    ...       [Spent(1, 1, 5), Spent(14, 8, 5), Spent(20, 10, 5)])["warm"]
    Spent(cpu=9, seconds=3, bytes=9)

    Args:
        every: usages over all input.
        first: usages over the first batch.

    Raises:
        RivalError: all input took less time than the first batch.
    """
    warm = every[2].since(every[1]).since(first[2].since(first[1]))
    return {"live": every[1].since(first[1]), "warm": warm, "whole": every[1]}


def changes(wanted: Sequence[tuple[str, str]], folder: Path, key: int | None = None) -> str:
    """Return DuckDB's SQL for the changes in the files below ``folder``, with the given names and
    types.

    Args:
        wanted: name and type of each column.
        folder: folder of a query's result.
        key: position of the key column if changes are upserts.
    """
    columns = (f'CAST(c{place} AS {kind}) AS "{name}"' for place, (name, kind) in enumerate(wanted))
    change = f"if(c{len(wanted)} IN ('-U', '-D'), '{Change.DELETE}', '{Change.INSERT}') AS {CHANGE}"
    rows = f"read_parquet('{folder}/*/part-*', file_row_number = true, filename = true)"
    if key is not None:
        # All changes of a key are in files of one subtask, which are ordered by a number in their
        # names.
        number = "CAST(regexp_extract(filename, '-([0-9]+)$', 1) AS BIGINT)"
        order = f"{number} DESC, file_row_number DESC"
        rows = f"(FROM {rows} QUALIFY row_number() OVER (PARTITION BY c{key} ORDER BY {order}) = 1)"
    return f"SELECT {', '.join(columns)}, {change} FROM {rows}"


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / f"{name}.sql").write_text(text, encoding="utf-8")
