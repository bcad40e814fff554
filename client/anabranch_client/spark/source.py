"""Spark's data source ``anabranch``: tables of queries, and results of queries as a stream.

Rows come over REST, so executors need neither the results directory nor the runtime. Offsets of a
stream are batches of the pipeline. The results of a range of batches never change, so a micro-batch
that Spark repeats has the same rows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from anabranch_client.errors import ClientError, UsageError
from anabranch_client.rest.api import DEFAULT_URL, Client
from anabranch_client.rest.tables import table_batches
from anabranch_client.rest.token import given_token
from anabranch_client.spark.patience import PATIENCE, patiently
from anabranch_contract.queries.runs import exact_name
from anabranch_contract.queries.types import DataType, TypeKind, parse_type
from anabranch_contract.rest.normalised import OutputInfo
from anabranch_contract.rest.tables import QueryTableOut

FORMAT = "anabranch"
#: Batch before all others: results of versions from before the first batch have batch -1.
BEFORE = -2
#: Name of Spark Connect's responses with profiles of Python workers (an accumulator).
_PROFILES = "__python_accumulator__"
#: Method of Spark Connect's client that reads responses.
_FETCH = "_execute_and_fetch_as_iterator"
_URL_VARIABLE = "ANABRANCH_URL"
#: Sessions that know the data source: Spark warns when it is registered again.
_SESSIONS: WeakSet[SparkSession] = WeakSet()
#: Environment variable of Spark with the interpreter of Python workers, and Spark's default.
_PYTHON_VARIABLE, _DEFAULT_PYTHON = "PYSPARK_PYTHON", "python3"
_OPTIONS = (
    *("url", "query", "path", "tokenFile", "changes", "asOfBatch", "startingBatch"),
    *("maxBatchesPerTrigger", "numPartitions"),
)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of the source.

    Attributes:
        query: a query or run. ``url``: the service's address; the token is in ``token_file`` or in
            the environment, on executors as well.
        changes: whether to read results as sinks have them, instead of the table.
        as_of: batch of a table; None: the newest.
        starting: first batch of a stream; None: all results.
        most: maximum batches of a micro-batch; None: no limit.
        partitions: number of partitions of results.
    """

    query: str
    url: str
    token_file: str | None
    changes: bool
    as_of: int | None
    starting: int | None
    most: int | None
    partitions: int

    @staticmethod
    def read(given: Mapping[str, str]) -> SourceOptions:
        """Parse the options given to Spark's reader.

        Raises:
            UsageError: an option is unknown, missing or malformed.
        """
        named = {name.lower(): name for name in _OPTIONS}
        found = {}
        for name, value in given.items():
            if name.lower() not in named:
                raise UsageError(
                    f"there is no option {name!r}",
                    field=name,
                    remedy=f"there are {', '.join(_OPTIONS)}",
                )
            found[named[name.lower()]] = value
        query = found.get("query") or found.get("path")
        if not query:
            raise UsageError(
                "no query is named", field="query", remedy='.option("query", name) names it'
            )
        return SourceOptions(
            query,
            found.get("url") or os.environ.get(_URL_VARIABLE) or DEFAULT_URL,
            found.get("tokenFile"),
            _flag(found, "changes"),
            _number_option(found, "asOfBatch", -1),
            _number_option(found, "startingBatch", 0),
            _number_option(found, "maxBatchesPerTrigger", 1),
            _number_option(found, "numPartitions", 1) or 1,
        )

    def client(self) -> Client:
        """A client of the service that the options name."""
        file = None if self.token_file is None else Path(self.token_file)
        return Client(self.url, token=given_token(file) or None)


def _flag(found: Mapping[str, str], name: str) -> bool:
    text = found.get(name, "false").lower()
    if text not in ("true", "false"):
        raise UsageError(f"{text!r} is neither true nor false", field=name, remedy="give one")
    return text == "true"


def _number_option(found: Mapping[str, str], name: str, least: int) -> int | None:
    text = found.get(name)
    if text is None:
        return None
    if not text.lstrip("-").isdecimal() or int(text) < least:
        raise UsageError(
            f"{text!r} is no whole number", field=name, remedy=f"give a number of at least {least}"
        )
    return int(text)


class BatchRange(InputPartition):
    """Rows that one task reads: the table as of batch ``upto`` or, with ``after``, the results of
    batches from the one after ``after`` to ``upto``."""

    def __init__(self, run: str, after: int | None, upto: int) -> None:
        self.run, self.after, self.upto = run, after, upto


def ranges(run: str, after: int, upto: int, parts: int) -> list[BatchRange]:
    """Cut the batches after ``after`` up to ``upto`` into neighbouring ranges.

    >>> [(r.after, r.upto) for r in ranges("q", -2, 7, 3)]
    [(-2, 1), (1, 4), (4, 7)]
    >>> ranges("q", 7, 7, 3)
    []
    """
    count = min(parts, upto - after)
    ends = [after + (upto - after) * n // count for n in range(count + 1)] if count > 0 else []
    return [BatchRange(run, a, b) for a, b in pairwise(ends)]


def spark_schema(columns: Sequence[OutputInfo]) -> str:
    """Columns as Spark's DDL; variants become JSON strings, intervals of months integers.

    >>> spark_schema([OutputInfo(name="a`b", type="array<variant>")])
    '`a``b` array<string>'
    """
    return ", ".join(f"`{c.name.replace('`', '``')}` {_type(c.type)}" for c in columns)


def _type(text: str) -> str:
    return "void" if text == "void" else _known_ddl(parse_type(text))


def _known_ddl(kind: DataType) -> str:
    inner = [_known_ddl(of) for _, of in kind.fields]
    if kind.kind is TypeKind.STRUCT:
        names = [name.replace("`", "``") for name, _ in kind.fields]
        pairs = zip(names, inner, strict=True)
        return f"struct<{','.join(f'`{name}`:{of}' for name, of in pairs)}>"
    if kind.kind is TypeKind.MAP:
        return f"map<{inner[0]},{inner[1]}>"
    if kind.kind is TypeKind.ARRAY:
        return f"array<{inner[0]}>"
    return {TypeKind.VARIANT: "string", TypeKind.MONTHS: "int"}.get(kind.kind, str(kind))


class AnabranchSource(DataSource):
    """The data source ``anabranch`` of Spark."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = SourceOptions.read(dict(options.items()))

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """The columns of the table, or of the results."""
        with self._options.client() as client:
            found = client.table_columns(self._options.query)
        return spark_schema(found.changes if self._options.changes else found.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reader of a table, or of all results so far."""
        return TableScan(self._options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Reader of results as a stream.

        Raises:
            UsageError: the results are changes, and the option ``changes`` is not set.
        """
        with self._options.client() as client:
            kind = client.table_columns(self._options.query).kind
        if kind != "results" and not self._options.changes:
            raise UsageError(
                f"the results of {self._options.query!r} are changes of its table",
                field="changes",
                remedy='read them as changes, by .option("changes", "true")',
            )
        return ResultStream(self._options, schema)


class _Reading:
    #: Seconds for which a service that does not answer is waited for.
    patience = 0.0

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options, self.schema = options, schema

    def table(self, name: str) -> QueryTableOut:
        """The table of a query or run."""
        with self.options.client() as client:
            return patiently(lambda: client.table_columns(name), self.patience)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, in Spark's types. Spark repeats a failed task as a whole."""
        assert isinstance(partition, BatchRange)
        wanted = to_arrow_schema(self.schema, timezone="UTC")
        run, upto, after = exact_name(partition.run), partition.upto, partition.after
        with self.options.client() as client:

            def begin() -> Iterator[pa.RecordBatch]:
                batches = table_batches(client, run, batch=upto, after=after)
                # The request is sent here, where it can be repeated: no row has been passed on.
                first = list(islice(batches, 1))
                return chain(first, batches)

            for batch in patiently(begin, self.patience):
                columns = [batch.column(f.name).cast(f.type) for f in wanted]
                yield pa.RecordBatch.from_arrays(columns, schema=wanted)


class TableScan(_Reading, DataSourceReader):
    """Reads a table as of one batch."""

    def partitions(self) -> list[InputPartition]:
        """One partition for the present rows of a table; for results, one per range of batches."""
        options, found = self.options, self.table(self.options.query)
        batch = found.batch if options.as_of is None else options.as_of
        if options.changes or found.kind == "results":
            return list(ranges(found.run, BEFORE, batch, options.partitions))
        return [BatchRange(found.run, None, batch)]


class ResultStream(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the results of one run of a query; an offset is the last batch that was read."""

    patience = PATIENCE
    _target: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        """The batch before the first one."""
        starting = self.options.starting
        before = BEFORE if starting is None else starting - 1
        return {"run": self.table(self.options.query).run, "batch": before}

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of batches, expressed as a limit of files: Spark has none of batches."""
        most = self.options.most
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to the batch that is the newest now."""
        self._target = self.table(self.options.query).batch

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The newest batch up to which all results are available, within the limit.

        Raises:
            ClientError: the run has ended, all of its results were read, and the query has another
                run.
        """
        run, read = str(start["run"]), int(start["batch"])
        found = self.table(exact_name(run))
        newest = found.batch if self._target is None else min(found.batch, self._target)
        if found.ended and newest <= read and self._target is None:
            self._check_run(run)
        if isinstance(limit, ReadMaxFiles):
            newest = min(newest, read + limit.max_files)
        return {"run": run, "batch": max(newest, read)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The partitions with the results after ``start`` up to ``end``."""
        run, upto = str(end["run"]), int(end["batch"])
        return list(ranges(run, int(start["batch"]), upto, self.options.partitions))

    def _check_run(self, run: str) -> None:
        newest = self.table(self.options.query).run
        if newest != run:
            raise ClientError(
                f"the run {run!r} has ended and was read; {self.options.query!r} has another one, "
                f"{newest!r}",
                field="query",
                remedy="its results are another stream: start one with another checkpoint",
            )


def default_client() -> Client:
    """A client of the service that the environment variables name."""
    return Client(os.environ.get(_URL_VARIABLE) or DEFAULT_URL)


def register(spark: SparkSession) -> None:
    """Make the data source ``anabranch`` known to a Spark session.

    With a local master and without ``PYSPARK_PYTHON``, Spark's Python workers are from now on
    processes of this interpreter: Spark's default, the first ``python3`` in ``PATH``, lacks this
    package where a virtual environment is used without being activated, as in notebooks.
    """
    connect = type(spark).__module__.startswith("pyspark.sql.connect")
    if not connect and not os.environ.get(_PYTHON_VARIABLE):
        context = spark.sparkContext
        if (context.master or "").startswith("local") and context.pythonExec == _DEFAULT_PYTHON:
            context.pythonExec = sys.executable
    if spark not in _SESSIONS:
        spark.dataSource.register(AnabranchSource)
        _SESSIONS.add(spark)
    if connect:
        _pass_over_profiles(spark.client)


def _pass_over_profiles(client: Any) -> None:
    """Ignore empty profiles of Python data sources in Spark Connect: PySpark 4.3 fails at them with
    UNKNOWN_RESPONSE, so that declarative pipelines end with an error after all datasets are
    written."""
    fetch = getattr(client, _FETCH, None)
    if fetch is None or _FETCH in vars(client):
        return

    def passed(*given: Any, **named: Any) -> Iterator[Any]:
        for response in fetch(*given, **named):
            if getattr(response, "name", "") != _PROFILES:
                yield response

    setattr(client, _FETCH, passed)


def query(
    spark: SparkSession,
    sql: str,
    *,
    name: str,
    client: Client | None = None,
    options: Mapping[str, str] | None = None,
    **terms: Any,
) -> DataFrame:
    """Register a query, unless it exists with the same terms, and read its results as a stream.

    A query of this name with another statement is replaced, at once or with the term ``cutover``.

    Args:
        sql: the statement, over registered streams.
        client: client of the service; default: with the environment's address and token.
        options: further options of the source.
        terms: further fields of the body of :meth:`Client.put_query`.

    Raises:
        ApiError: the service refused the query.
    """
    own = client or default_client()
    own.put_query(name, {"sql": sql, **terms})
    register(spark)
    given = {"url": own.base_url, "query": name, "changes": "true", **(options or {})}
    return spark.readStream.format(FORMAT).options(**given).load()
