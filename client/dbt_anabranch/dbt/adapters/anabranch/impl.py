"""The adapter: models become queries by ``PUT /v1/queries/{name}``."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import agate
from dbt.adapters.anabranch.connections import AnabranchConnectionManager
from dbt.adapters.base import BaseAdapter, BaseRelation, Column, available
from dbt.adapters.contracts.relation import Policy, RelationType
from dbt_common.clients.agate_helper import table_from_rows
from dbt_common.exceptions import DbtRuntimeError

from anabranch_client.errors import ApiError
from anabranch_client.rest.api import Client
from anabranch_contract.rest.normalised import OutputInfo
from anabranch_contract.rest.queries import QueryOut

#: States of a query that has not ended.
_LIVE: Final = ("pending", "active", "paused", "expiring")
#: Maximum seconds to wait for the end of a withdrawn query.
_PATIENCE: Final = 120.0
_CATALOG: Final = (
    "table_database", "table_schema", "table_name", "table_type", "table_comment", "table_owner",
    "column_name", "column_index", "column_type", "column_comment",
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class AnabranchRelation(BaseRelation):
    """A stream or query, which has a plain name."""

    include_policy: Policy = field(default_factory=lambda: Policy(False, False, True))
    quote_policy: Policy = field(default_factory=lambda: Policy(False, False, False))


def _sink(path: str) -> dict[str, Any]:
    """The sink of a model: a Delta table at ``path`` with the query's present rows."""
    return {"format": "delta", "path": path, "options": {"anabranch.table": "current"}}


def _shown(query: QueryOut) -> list[OutputInfo]:
    """Columns of a query's rows, without the kind of a change."""
    return [one for one in query.normalised.output if one.name != "anabranch_change"]


def _next_run(name: str, known: QueryOut | None) -> str:
    """Name of a query's next run."""
    if known is None:
        return name
    number = known.run.rpartition("~")[2] if "~" in known.run else "1"
    return f"{name}~{int(number) + 1}"


class AnabranchAdapter(BaseAdapter):
    """Registers models, and describes streams and queries."""

    Relation = AnabranchRelation
    ConnectionManager = AnabranchConnectionManager

    @property
    def _client(self) -> Client:
        client: Client = self.connections.get_thread_connection().handle
        return client

    # --- models ----------------------------------------------------------------------------------

    @available
    def register(
        self,
        name: str,
        sql: str,
        terms: dict[str, Any],
        folder: str | None,
        replace: bool,
        selected: list[str],
    ) -> str:
        """Make the query ``name`` equal to a model; return the outcome in one word.

        Args:
            terms: further fields of ``PUT /v1/queries/{name}``, such as ``window``.
            folder: of the Delta tables, if the model is one; each run has a table of its own.
            replace: whether a query that is equal begins again, too.
            selected: ids of the nodes of this run. Models that read a replaced query are withdrawn
                with it, so they have to be among them.
        """
        body = {**terms, "sql": sql}
        with self.connections.exception_handler(sql):
            known = self._known(name)
            live = known if known is not None and known.status in _LIVE else None
            if live is not None and not replace:
                if folder is not None:
                    body["sink"] = _sink(str(live.sink.path))
                try:
                    action = self._client.put_query(name, body, dry_run=True).action
                    if folder is None or action != "replaced":
                        return str(self._client.put_query(name, body).action)
                except ApiError as error:
                    if error.code not in ("query-is-read", "sink-in-use"):
                        raise
            if live is not None:
                self._withdraw(name, selected)
            if folder is not None:
                body["sink"] = _sink(f"{folder}/{_next_run(name, known)}")
            self._client.put_query(name, body)
            return "created" if live is None else "replaced"

    def _known(self, name: str) -> QueryOut | None:
        """The query of that name, live or ended."""
        try:
            return self._client.query(name)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def _live(self, name: str) -> QueryOut | None:
        known = self._known(name)
        return known if known is not None and known.status in _LIVE else None

    def _withdraw(self, name: str, selected: list[str]) -> None:
        """End a query with its readers."""
        models = {one.rpartition(".")[2] for one in selected}
        readers, found = set[str](), [name]
        while found:
            live = self._live(found.pop())
            fresh = set() if live is None else set(live.read_by) - readers
            readers |= fresh
            found += fresh
        if others := sorted(readers - models):
            raise DbtRuntimeError(
                f"{name} can't be replaced: it is read by {', '.join(others)}, not selected here; "
                f"select {name}+, or withdraw these queries"
            )
        self._client.delete_query(name, cascade=True)
        end = time.monotonic() + _PATIENCE
        while any(self._live(one) is not None for one in (name, *readers)):
            if time.monotonic() > end:
                raise DbtRuntimeError(f"{name} has not ended after {_PATIENCE:.0f} seconds")
            time.sleep(0.2)

    def drop_relation(self, relation: BaseRelation) -> None:
        """Withdraw a query."""
        if self._live(str(relation.identifier)) is not None:
            self._client.delete_query(str(relation.identifier))

    # --- catalog ---------------------------------------------------------------------------------

    def list_relations_without_caching(self, schema_relation: BaseRelation) -> list[BaseRelation]:
        """List the live queries as relations of dbt."""
        return [
            self.Relation.create(
                database=schema_relation.database,
                schema=schema_relation.schema,
                identifier=query.id,
                type=RelationType.Table,
            )
            for query in self._client.queries(status=_LIVE)
        ]

    def get_columns_in_relation(self, relation: BaseRelation) -> list[Column]:
        """Columns of a query or stream."""
        return [Column(name, kind) for name, kind in self._columns(str(relation.identifier))]

    def _columns(self, name: str) -> list[tuple[str, str]]:
        live = self._live(name)
        if live is not None:
            return [(one.name, one.type) for one in _shown(live)]
        return [(one.name, one.type) for one in self._client.stream(name).columns]

    def get_catalog(
        self, relation_configs: Iterable[Any], used_schemas: Any
    ) -> tuple[agate.Table, list[Exception]]:
        """The columns of all models and sources, for ``dbt docs``."""
        rows = []
        with self.connection_named("catalog"):
            streams = {one.name: one.columns for one in self._client.streams()}
            listed = self._client.queries(status=_LIVE)
            queries = {one.id: _shown(one) for one in listed}
        for one in relation_configs:
            kind = "query" if one.identifier in queries else "stream"
            columns = {**streams, **queries}.get(one.identifier, [])
            rows += [
                (one.database, one.schema, one.identifier, kind, "", "", c.name, n, c.type, "")
                for n, c in enumerate(columns, 1)
            ]
        return table_from_rows(rows, _CATALOG), []

    def list_schemas(self, database: str) -> list[str]:
        """List the only schema: a pipeline has no others."""
        return [self.config.credentials.schema]

    def create_schema(self, relation: BaseRelation) -> None:
        """Do nothing: a pipeline has no schemas."""

    def drop_schema(self, relation: BaseRelation) -> None:
        """Do nothing: a pipeline has no schemas."""

    def expand_column_types(self, goal: BaseRelation, current: BaseRelation) -> None:
        """Do nothing: a query's columns keep the types that its statement gives them."""

    # --- refused ---------------------------------------------------------------------------------

    def truncate_relation(self, relation: BaseRelation) -> NoReturn:
        """Raise an error: results can't be removed."""
        raise DbtRuntimeError("results of a query can't be truncated: run with --full-refresh")

    def rename_relation(self, from_relation: BaseRelation, to_relation: BaseRelation) -> NoReturn:
        """Raise an error: queries keep their names."""
        raise DbtRuntimeError("queries can't be renamed: register the model under its new name")

    @classmethod
    def _no_seeds(cls, agate_table: agate.Table, col_idx: int) -> NoReturn:
        raise DbtRuntimeError("seeds are not supported: register the file as a stream, kind table")

    convert_text_type = convert_number_type = convert_integer_type = _no_seeds
    convert_boolean_type = convert_datetime_type = convert_date_type = convert_time_type = _no_seeds

    # --- properties ------------------------------------------------------------------------------

    @classmethod
    def date_function(cls) -> str:
        """The present time in SQL."""
        return "now()"

    @classmethod
    def is_cancelable(cls) -> bool:
        """Whether requests can be cancelled: no, since they are short."""
        return False

    @classmethod
    def quote(cls, identifier: str) -> str:
        """A name in Spark's quotes."""
        return f"`{identifier}`"
