"""Bodies of ``/v1/functions``: users' functions."""

from __future__ import annotations

from typing import Annotated, TypedDict

from pydantic import Field

from anabranch_contract.connectors.user_functions import FunctionKind, UserFunction, read_signature
from anabranch_contract.protocol.registered import Description
from anabranch_contract.rest.documents import (
    Closed,
    Document,
    Duration,
    Open,
    StreamName,
    Time,
    examples,
)


class FunctionIn(Closed):
    """A Python function to register for queries.

    Attributes:
        signature: name, parameters and result, with types of Spark's SQL.
        module: module that the operator allows: NAME for NAME.py, a.b for a/b.py in a folder.
        attribute: name of the function in the module; default: the same as in SQL.
        kind: form of arguments and result: Arrow arrays, pandas Series, or values of one row.
        deterministic: whether equal arguments always have equal results. If not, queries may call
            the function in the SELECT list only.
        time_limit: time limit of a call; one call computes a batch of rows.
        description: description for people.
    """

    model_config = examples(
        {"signature": "discounted(price DOUBLE, code STRING) RETURNS DOUBLE", "module": "prices"}
    )

    signature: Annotated[
        str,
        Field(
            min_length=1,
            max_length=10_000,
            examples=["discounted(price DOUBLE, code STRING) RETURNS DOUBLE"],
        ),
    ]
    module: Annotated[
        str, Field(max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$")
    ]
    attribute: StreamName | None = None
    kind: FunctionKind = FunctionKind.ARROW
    deterministic: bool = True
    time_limit: Duration = "10 seconds"
    description: Description = ""


class FunctionOptions(TypedDict, total=False):
    """Keyword arguments for optional fields of :class:`FunctionIn`; None means the default."""

    attribute: str | None
    kind: str | None
    deterministic: bool | None
    time_limit: str | None
    description: str | None


class FunctionRecord(Closed):
    """A registered function, as stored.

    Attributes:
        time_limit: time limit of a call, in milliseconds.
        digest: SHA-256 of the module's file at the registration.
    """

    signature: str
    module: str
    attribute: str
    kind: FunctionKind
    deterministic: bool
    time_limit: int
    description: str
    digest: str
    created_at: Time

    def to_function(self) -> UserFunction:
        """Return the function as the planner's :class:`UserFunction`."""
        name, parameters, result = read_signature(self.signature)
        return UserFunction(
            name,
            tuple(parameters.values()),
            result,
            self.module,
            self.attribute,
            self.kind,
            self.deterministic,
            self.time_limit,
            self.digest,
        )


class FunctionOut(Document):
    """A registered function, and the queries that call it.

    Attributes:
        name: name of the function in SQL.
        signature: name, parameters and result, with types of Spark's SQL.
        module: module that contains the function.
        attribute: name of the function in the module.
        kind: form of arguments and result: Arrow arrays, pandas Series, or values of one row.
        deterministic: whether equal arguments always have equal results.
        time_limit: time limit of a call, as a duration.
        description: description for people.
        digest: SHA-256 of the module's file at the registration.
        version: digest of all properties except the description.
        created_at: time of its registration.
        queries: live queries that call the function.
    """

    name: str
    signature: str
    module: str
    attribute: str
    kind: Open[FunctionKind]
    deterministic: bool
    time_limit: str
    description: str
    digest: str
    version: str
    created_at: Time
    queries: list[str]


class FunctionList(Document):
    """All registered functions, and the names of the built-in ones.

    Attributes:
        items: the registered functions, by name.
        builtin: names of the built-in functions.
    """

    items: list[FunctionOut]
    builtin: list[str]
