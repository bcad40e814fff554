"""Statement sets in Flink: their files, the JVM that runs them, its CPU time, and their answers.

A JVM is the whole cluster: client, job manager and one task manager. No service, REST server or
network lies between them, and nothing is written but to the sinks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract.queries.views import CHANGE, Change
from benchmarks.nexmark.answers import Oracle
from benchmarks.nexmark.generator import Events
from benchmarks.nexmark.statements import Nexmark
from benchmarks.rivals.environment import Environment, RivalError, java_program
from benchmarks.rivals.flink import statements

ENVIRONMENT = Environment("flink")
#: Class path of the environment's Java sources and of the JVM, besides the environment's jars.
CLASSPATH = "{packages}/pyflink/lib/*"
#: Streams that Flink reads from files.
STREAMS = ("person", "auction", "bid")
#: Nothing takes as many seconds but a job that hangs.
_PATIENCE = 1800.0
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
#: Lines of a failed job's output that its error shows.
_SHOWN = 12


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


def write_input(streams: Mapping[str, Events], folder: Path, *, files: int, part: float) -> None:
    """Write the first rows of each stream in ``files`` interleaved Parquet files, one per reader.

    Args:
        part: share of each stream's rows.
    """
    for name in STREAMS:
        table = streams[name].table
        # Columns are microseconds in UTC; Flink's time attributes are milliseconds without zone.
        table = table.slice(0, round(table.num_rows * part))
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
        sets: name -> queries of one statement set.
    """

    home: Path
    mode: Mode
    sets: Mapping[str, Sequence[Nexmark]]

    def write(self, inputs: Path, jvm: Jvm) -> None:
        """Write all files; ``inputs``: that of :func:`write_input`."""
        tables = statements.tables({name: inputs / name for name in STREAMS})
        _write(self.home / "tables", tables)
        for name, queries in self.sets.items():
            _write(self.home / name, {q.name: statements.QUERIES[q.name] for q in queries})
        lines = (f"{k}={v}\n" for k, v in jvm.configuration(self.mode, self.home).items())
        (self.home / "flink.properties").write_text("".join(lines), encoding="utf-8")
        (self.home / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")

    def run(self, jvm: Jvm, *, times: int = 1, checked: bool = False) -> list[float]:
        """Run every set ``times`` times in a new JVM, which ends.

        Args:
            checked: write the changes of the answers, in every mode.

        Returns:
            CPU seconds of the process at the beginning and after each run.

        Raises:
            RivalError: a job failed.
        """
        connector = _FILES if checked or self.mode is Mode.DURABLE else _NOTHING
        sets = [name for name in self.sets for _ in range(times)]
        return cpu_marks(_output(jvm.command(str(self.home), connector, *sets), self.home))

    def check(self, oracle: Oracle) -> dict[str, int]:
        """Rows of every query's answer, in the last set with it.

        Raises:
            WrongResultError: its changes do not sum up to DuckDB's answer.
        """
        return {
            query.name: oracle.compare(
                query, changes(oracle, query, self.home / "answers" / name / query.name)
            )
            for name, queries in self.sets.items()
            for query in queries
        }


def cpu_marks(output: str) -> list[float]:
    r"""The CPU seconds that the driver printed.

    >>> cpu_marks("a line of the JVM\ncpu\t0.5\t12.25\n")
    [0.5, 12.25]

    Raises:
        RivalError: it printed none.
    """
    for line in output.splitlines():
        kind, *values = line.split("\t")
        if kind == "cpu":
            return [float(value) for value in values]
    raise RivalError(f"Flink printed no CPU time:\n{output}")


def changes(oracle: Oracle, query: Nexmark, folder: Path) -> str:
    """DuckDB's statement for the changes below ``folder``, with the names and types of the oracle's
    answer.
    """
    wanted = oracle.columns(query)
    columns = (f'CAST(c{place} AS {kind}) AS "{name}"' for place, (name, kind) in enumerate(wanted))
    change = f"if(c{len(wanted)} IN ('-U', '-D'), '{Change.DELETE}', '{Change.INSERT}') AS {CHANGE}"
    rows = f"read_parquet('{folder}/*/part-*', file_row_number = true, filename = true)"
    if query.name in statements.UPSERTED:
        key = f"c{statements.UPSERTED[query.name]}"
        # A key's changes are in one subtask's files, which a number in their names orders.
        number = "CAST(regexp_extract(filename, '-([0-9]+)$', 1) AS BIGINT)"
        order = f"{number} DESC, file_row_number DESC"
        rows = f"(FROM {rows} QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {order}) = 1)"
    return f"SELECT {', '.join(columns)}, {change} FROM {rows}"


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / f"{name}.sql").write_text(text, encoding="utf-8")


def _output(command: Sequence[str], folder: Path) -> str:
    """Standard output of a command in ``folder``."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE,
        )
    except subprocess.TimeoutExpired as error:
        raise RivalError(f"Flink has not ended after {_PATIENCE:.0f} s") from error
    if done.returncode:
        raise RivalError(f"Flink failed:\n{_last(done.stderr.splitlines())}")
    return done.stdout


def _last(lines: Iterable[str]) -> str:
    """The lines with causes, or the first ones."""
    found = list(lines)
    causes = [line for line in found if line.startswith(("Caused by", "Exception", "ERROR"))]
    return "\n".join((causes or found)[:_SHOWN])
