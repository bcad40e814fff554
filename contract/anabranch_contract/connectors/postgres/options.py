"""Options of PostgreSQL tables whose changes the runtime follows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch_contract.connectors.sources import OnLoss, bad_option, check_known, choice
from anabranch_contract.errors import StreamError
from anabranch_contract.queries.changes import ChangeFormat

POSTGRES = "postgres"
NAMES = ("url", "password", "table", "slot", "publication", "on_loss")
#: Settings of a session that determine how PostgreSQL writes values as text.
_TEXTS = (
    "-c datestyle=ISO,YMD -c intervalstyle=iso_8601 -c timezone=UTC -c extra_float_digits=1"
    " -c bytea_output=hex -c idle_in_transaction_session_timeout=0 -c statement_timeout=0"
)
_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_NAME = r'(?:[A-Za-z_][A-Za-z0-9_$]*|"[^"\x00]+")'
_TABLE = re.compile(rf"(?:({_NAME})\.)?({_NAME})")


@dataclass(frozen=True, slots=True)
class PostgresOptions:
    """Options of a ``postgres`` source.

    Attributes:
        schema, table: schema and name of the table, as the catalog spells them.
        slot: name of the replication slot; None: a name of the stream's own.
        publication: name of the publication; None: a name of the stream's own.
        on_loss: policy for changes that were lost with the slot.
    """

    schema: str
    table: str
    slot: str | None = None
    publication: str | None = None
    on_loss: OnLoss = OnLoss.STOP


def session_settings(options: Mapping[str, str], patience: int) -> dict[str, Any]:
    """Return libpq's arguments for a connection in whose session PostgreSQL writes values in the
    form that the runtime parses.

    Args:
        options: options of the source, with secrets in place of references to them.
        patience: seconds to wait for the connection, unless the URL has ``connect_timeout``.
    """
    url = options["url"]
    given = {"dsn": url, "application_name": "anabranch", "client_encoding": "UTF8",
             "options": _TEXTS, "keepalives_idle": 5, "keepalives_interval": 2,
             "keepalives_count": 3}  # fmt: skip
    if "connect_timeout" not in url:
        given["connect_timeout"] = patience
    return given | ({"password": options["password"]} if "password" in options else {})


def postgres_options(options: Mapping[str, str]) -> PostgresOptions:
    """Parse the options of a ``postgres`` source.

    Raises:
        StreamError: an option is missing or unknown, or has an invalid value.

    >>> found = postgres_options({"url": "postgresql://u@h/d", "table": 'Sales."Order"'})
    >>> found.schema, found.table
    ('sales', 'Order')
    """
    check_known(options, NAMES, POSTGRES)
    if not options.get("url"):
        raise bad_option(
            "url", "a postgres source needs its database", "give postgresql://user@host:5432/name"
        )
    match = _TABLE.fullmatch(options.get("table", ""))
    if match is None:
        raise bad_option("table", "a postgres source needs a table", "give table or schema.table")
    slot, publication = options.get("slot"), options.get("publication")
    if slot is not None and _SLOT.fullmatch(slot) is None:
        raise bad_option(
            "slot", f"{slot[:80]!r} is not a name of a slot", "use a-z, 0-9 and _, 63 at most"
        )
    if publication is not None and re.fullmatch(_NAME, publication) is None:
        raise bad_option(
            "publication", f"{publication[:80]!r} is not a name", "give a name without quotes in it"
        )
    return PostgresOptions(
        _spelled(match[1] or "public"),
        _spelled(match[2]),
        slot,
        None if publication is None else _spelled(publication),
        choice(OnLoss, options, "on_loss", OnLoss.STOP),
    )


def _spelled(name: str) -> str:
    """Return the catalog's spelling of a name in PostgreSQL's SQL: in lower case unless quoted."""
    return name[1:-1] if name.startswith('"') else name.lower()


def check_changes(changes: ChangeFormat | None) -> None:
    """Check that a stream of changes can be read from the changes of a PostgreSQL table.

    Raises:
        StreamError: ``changes`` is missing, or has fields that such a stream can't have.
    """
    if changes is None or changes.operation is None:
        raise StreamError(
            "postgres-without-changes",
            "rows of a postgres source replace and delete others, which this kind of stream can't",
            field="kind",
            remedy="register it with kind upsert and the table's primary key as key",
        )
    if changes.inserts or changes.deletes or changes.null_deletes:
        raise StreamError(
            "postgres-operations",
            "the operations of a postgres source are its own",
            field="changes",
            remedy="leave out inserts, deletes and null_deletes",
        )
