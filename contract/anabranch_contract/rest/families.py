"""Bodies of ``/v1/families`` and ``/v1/queries:family``: queries that differ only in constants."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.families import substituted
from anabranch_contract.rest.documents import (
    NAME_KEYS,
    Document,
    QueryName,
    StatementText,
    examples,
)
from anabranch_contract.rest.queries import MAX_BATCH, Parameters, QueryIn, RegistrationIn


class FamilyIn(RegistrationIn):
    """Queries to register at once, all or none, with one statement that has parameters (``:name``).
    Each query gets the name of the family, a hyphen, and its key in ``parameters``.

    Attributes:
        name: name of the family.
        sql: the statement, with parameters.
        parameters: key of a query, the end of its name -> value of each parameter. For more queries
            than a request may have, register a table of the constants, and join it.
    """

    model_config = examples(
        {
            "name": "large",
            "sql": "SELECT f.carrier, w.wind FROM flights f JOIN weather w ON f.origin = w.origin "
            "WHERE w.wind > :least AND f.origin = :airport",
            "window": "1 hour",
            "parameters": {
                "kef": {"least": 20, "airport": "KEF"},
                "osl": {"least": 15, "airport": "OSL"},
            },
        }
    )

    name: QueryName = Field(validation_alias=NAME_KEYS)
    sql: StatementText
    parameters: Annotated[dict[str, Parameters], Field(min_length=1, max_length=MAX_BATCH)]

    def member(self, key: str) -> QueryIn:
        """Return the registration of the family's query with the key ``key``.

        Raises:
            QueryError: the values do not fit the statement; the field is below ``parameters``.
            ValidationError: the key has a character that names of queries may not have.
        """
        try:
            sql = substituted(self.sql, self.parameters[key], self.dialect)
        except QueryError as error:
            raise error.moved(field=f"parameters.{key}.{error.field}") from None
        given = self.model_dump(exclude_unset=True, exclude={"parameters"})
        return QueryIn.model_validate(given | {"name": f"{self.name}-{key}", "sql": sql})


class FamilyOut(Document):
    """A family: queries whose statements differ only in constants.

    Attributes:
        id: digest of ``statement``.
        statement: the statement, with ``?`` for each constant and ``(?)`` for each list after IN.
        queries: number of the family's queries.
        first: the query of the family that was registered first.
    """

    id: str
    statement: str
    queries: int
    first: str


class FamilyList(Document):
    """Families of at least two queries, the largest first.

    Attributes:
        items: the families.
    """

    items: list[FamilyOut]


class FamilyMember(Document):
    """A query of a family, with its constants in the order of the statement.

    Attributes:
        id: same as ``name``.
        name: name of the query.
        constants: its constants, in the order of the statement.
        status: status of the query.
        results: number of results emitted so far; for a view, of its current rows.
    """

    id: str
    name: str = ""
    constants: list[str]
    status: str
    results: int


class FamilyMembers(Document):
    """A page of a family's queries, in order of registration.

    Attributes:
        family: the family.
        items: the queries of the page.
        next_cursor: ``cursor`` of the next page; null: this is the last page.
    """

    family: FamilyOut
    items: list[FamilyMember]
    next_cursor: str | None
