"""Statement sets in Flink: their files, the JVM that runs them, its time, and their answers.

A JVM is the whole cluster: client, job manager and one task manager. No service, REST server or
network lies between them, and nothing is written but to the sinks.
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
#: Class path of the environment's Java sources and of the JVM, besides the environment's jars.
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
    """Settings of Flink that differ between runs."""

    ROWS = "row by row"
    MINI_BATCH = "mini-batch"
    DURABLE = "durable"


#: Sinks of a mode; others have Flink's ``blackhole``.
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
    """The JVM's options and the settings that all runs have.

    Attributes:
        parallelism: of every operator.
        backend: of state, ``hashmap`` or ``rocksdb``.
        heap: size, as for ``-Xmx``.
    """

    parallelism: int = 2
    backend: str = "hashmap"
    heap: str = "6g"

    def configuration(self, mode: Mode, home: Path) -> dict[str, str]:
        """Flink's configuration for jobs with files in ``home``."""
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
        """The command that runs the driver."""
        path = (
            str(ENVIRONMENT.classes),
            CLASSPATH.format(packages=ENVIRONMENT.packages),
            f"{ENVIRONMENT.jars}/*",
        )
        opened = [f"--add-opens=java.base/{one}=ALL-UNNAMED" for one in _OPENED]
        # The collector with the least CPU time here.
        options = [f"-Xmx{self.heap}", "-XX:+UseParallelGC", *opened]
        logging = "-Dlog4j.configurationFile=log4j2.properties"
        return [
            *(java_program("java"), *options, logging, "-cp", os.pathsep.join(path)),
            *("Driver", *arguments),
        ]


def write_input(streams: Mapping[str, pa.Table], folder: Path, *, files: int, part: float) -> None:
    """Write the first rows of each stream in ``files`` interleaved Parquet files, one per reader.

    Args:
        streams: stream -> its rows.
        folder: gets a folder for each stream.
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
    """Folder of what a JVM is to run.

    Attributes:
        home: folder of its files.
        mode: Flink's settings.
        sets: name -> query -> statement, of one statement set each.
    """

    home: Path
    mode: Mode
    sets: Mapping[str, Mapping[str, str]]

    def write(self, tables: Mapping[str, str], jvm: Jvm) -> None:
        """Write all files; ``tables``: table -> its statement."""
        _write(self.home / "tables", tables)
        for name, queries in self.sets.items():
            _write(self.home / name, queries)
        lines = (f"{k}={v}\n" for k, v in jvm.configuration(self.mode, self.home).items())
        (self.home / "flink.properties").write_text("".join(lines), encoding="utf-8")
        (self.home / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")

    def run(self, jvm: Jvm, *, times: int = 1, checked: bool = False) -> list[Spent]:
        """Run every set ``times`` times in a new JVM, which ends.

        Args:
            checked: write the changes of the answers, in every mode.

        Returns:
            Usage of the process until the beginning, and until the end of each run.

        Raises:
            RivalError: a job failed.
        """
        connector = _FILES if checked or self.mode is Mode.DURABLE else _NOTHING
        sets = [name for name in self.sets for _ in range(times)]
        return usage(output(jvm.command(str(self.home), connector, *sets), self.home))

    def answer(self, name: str, query: str) -> Path:
        """Folder with the changes of a query of the set ``name``."""
        return self.home / "answers" / name / query


def usage(printed: str) -> list[Spent]:
    r"""The usage that the driver printed.

    >>> usage("a line of the JVM\nused\t0.5 0.25 4096\t12.25 7 8192\n")
    [Spent(cpu=0.5, seconds=0.25, bytes=4096), Spent(cpu=12.25, seconds=7.0, bytes=8192)]

    Raises:
        RivalError: it printed none.
    """
    for line in printed.splitlines():
        kind, *marks = line.split("\t")
        if kind == "used":
            return [Spent.read(mark) for mark in marks]
    raise RivalError(f"Flink printed no CPU time:\n{printed}")


class Inputs:
    """All rows of some streams, and their first ones, as files.

    Args:
        streams: stream -> its rows.
        home: gets a folder for each of the two inputs.
        files: number of files of a stream.
        first: share of the first rows.
    """

    def __init__(
        self, streams: Mapping[str, pa.Table], home: Path, *, files: int, first: float
    ) -> None:
        self.every, self.first = home / "every", home / "first"
        write_input(streams, self.every, files=files, part=1.0)
        write_input(streams, self.first, files=files, part=first)

    def marks(self, jvm: Jvm, job: Callable[[Path], Job]) -> tuple[list[Spent], list[Spent]]:
        """Marks of two runs over all rows, and of two over the first ones.

        Args:
            jvm: settings.
            job: makes the job over an input.

        Raises:
            RivalError: a job failed.
        """
        found = []
        for folder in (self.every, self.first):
            made = job(folder)
            found.append(made.run(jvm, times=2))
            shutil.rmtree(made.home)
        return found[0], found[1]


#: Part of a job's usage -> title.
PARTS = {"live": "from the second batch", "warm": "warm", "whole": "whole process"}


def parts(every: Sequence[Spent], first: Sequence[Spent]) -> dict[str, Spent]:
    """Usage by :data:`PARTS`, from the marks of two processes with two runs each.

    >>> parts([Spent(1, 1, 9), Spent(21, 11, 9), Spent(36, 16, 9)],
    ...       [Spent(1, 1, 5), Spent(14, 8, 5), Spent(20, 10, 5)])["warm"]
    Spent(cpu=9, seconds=3, bytes=9)

    Args:
        every: over all input.
        first: over the first batch.

    Raises:
        RivalError: all input took less time than the first batch.
    """
    warm = every[2].since(every[1]).since(first[2].since(first[1]))
    return {"live": every[1].since(first[1]), "warm": warm, "whole": every[1]}


def changes(wanted: Sequence[tuple[str, str]], folder: Path, key: int | None = None) -> str:
    """DuckDB's statement for the changes below ``folder``, with these names and types.

    Args:
        wanted: name and type of each column.
        folder: of a query's answer.
        key: place of the column by which changes are upserts.
    """
    columns = (f'CAST(c{place} AS {kind}) AS "{name}"' for place, (name, kind) in enumerate(wanted))
    change = f"if(c{len(wanted)} IN ('-U', '-D'), '{Change.DELETE}', '{Change.INSERT}') AS {CHANGE}"
    rows = f"read_parquet('{folder}/*/part-*', file_row_number = true, filename = true)"
    if key is not None:
        # A key's changes are in one subtask's files, which a number in their names orders.
        number = "CAST(regexp_extract(filename, '-([0-9]+)$', 1) AS BIGINT)"
        order = f"{number} DESC, file_row_number DESC"
        rows = f"(FROM {rows} QUALIFY row_number() OVER (PARTITION BY c{key} ORDER BY {order}) = 1)"
    return f"SELECT {', '.join(columns)}, {change} FROM {rows}"


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / f"{name}.sql").write_text(text, encoding="utf-8")
