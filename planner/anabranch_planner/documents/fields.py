"""Base of the models that validate documents; their errors have the invalid field and a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from anabranch_contract.durations import parse_duration
from anabranch_contract.errors import PlannerError
from anabranch_planner.sql.scope import nearest

#: Valid names of streams, aliases and columns in documents.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
#: Valid ids of queries in documents.
QUERY_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
#: Upper limit of counts, beyond any real stream; a product of twenty such counts is finite.
MOST = 1e15


class ProblemError(PlannerError):
    """A problem file is invalid."""


def refused(message: str, at: str, remedy: str) -> ProblemError:
    """The error for an invalid field ``at`` of a document."""
    return ProblemError("malformed-problem", message, field=at, remedy=remedy)


@contextmanager
def within(at: str) -> Iterator[None]:
    """Report errors raised inside the block as errors of the document's field ``at``.

    >>> from anabranch_contract.errors import QueryError
    >>> with within("queries.q1"):
    ...     raise QueryError("unknown-alias", "there is no alias 'X'", field="predicates[0]")
    Traceback (most recent call last):
    anabranch_planner.documents.fields.ProblemError: queries.q1.predicates[0]: there is no \
alias 'X'
    """
    try:
        yield
    except RecursionError as cause:
        raise refused("the condition is nested too deeply", at, "use fewer parentheses") from cause
    except PlannerError as cause:
        where = ".".join(part for part in (at, cause.field) if part)
        raise ProblemError(cause.code, cause.detail, field=where, remedy=cause.remedy) from cause


def shown(value: Any) -> str:
    """A document's ``value`` as one short line for an error message.

    >>> shown("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


class Part(BaseModel):
    """Base model of a mapping in a document; null or an empty mapping means all defaults.

    Attributes:
        example: the remedy shown if the value is not a mapping.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    example: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise refusal(f"expected a mapping, found {shown(value)}", cls.example)
        names = [field.alias or name for name, field in cls.model_fields.items()]
        for key in value:
            if isinstance(key, str) and key not in names:
                raise refusal("there is no such field", nearest(key, names), key)
        return value


_Part = TypeVar("_Part", bound=Part)
_T = TypeVar("_T")

#: Type of a validation error -> message and remedy.
_REASONS = {
    "bool_type": ("expected true or false, found {found}", "write true or false"),
    "dict_type": ("expected a mapping, found {found}", "write key: value pairs"),
    "enum": ("there is no {name} {found}", "use {expected}"),
    "finite_number": ("{found} is not a number", "leave out what is unknown"),
    "float_type": ("expected a number, found {found}", "leave out what is unknown"),
    "greater_than": ("{found} is too small", "use a number above {gt:g}"),
    "greater_than_equal": ("{found} is less than {ge:g}", "use a number from {ge:g}"),
    "int_type": ("{found} is not a whole number", "use a number such as 1 or 2"),
    "invalid_key": ("{found} is not a text", "put it in quotes"),
    "less_than_equal": ("{found} is too large", "use a number up to {le:g}"),
    "list_type": ("expected a list, found {found}", "write [first, second]"),
    "missing": ("the field {name} is missing", "write {name}: ..."),
    "string_pattern_mismatch": ("{found} is not a name", "use letters, digits and _, at most 128"),
    "string_too_short": ("the text is empty", "write a text, or leave it out"),
    "string_type": ("{found} is not a text", "put it in quotes"),
    "tuple_type": ("expected a list, found {found}", "write [first, second]"),
    "too_short": ("the list is empty", "write at least one of {name}"),
}


def read(kind: type[_Part], document: Any) -> _Part:
    """Validate a parsed ``document`` as a ``kind``.

    Raises:
        ProblemError: the document is invalid; ``field`` is a path such as ``streams.R.rate``.
    """
    try:
        return kind.model_validate(document)
    except ValidationError as cause:
        error = cause.errors(include_url=False)[0]
    about = {"message": error["msg"], "remedy": "correct the field", **error.get("ctx", {})}
    place, found = error["loc"], shown(error["input"])
    if place[-1:] == ("[key]",) or error["type"] == "invalid_key":
        place, found = place[: -2 if place[-1] == "[key]" else -1], f"the key {found}"
    place = tuple(part for part in (*place, *about.get("place", ())) if part not in _TAGS)
    at = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    about |= {"found": found, "name": place[-1] if place else ""}
    message, remedy = _REASONS.get(error["type"], ("{message}", "{remedy}"))
    raise ProblemError(
        about.get("code", "malformed-problem"),
        message.format(**about),
        field=at.lstrip("."),
        remedy=remedy.format(**about),
    )


def refusal(
    message: str, remedy: str, *place: str, code: str = "malformed-problem"
) -> PydanticCustomError:
    """The error of a validator; ``place``: path from the document's value to the fault."""
    about = {"message": message, "remedy": remedy, "place": place, "code": code}
    return PydanticCustomError("refused", "{message}", about)


def _duration_field(value: Any) -> int:
    if not isinstance(value, str):
        raise refusal(f"{shown(value)} is not a duration", "write '10m' or '10 minutes'")
    try:
        micros = parse_duration(value)
    except PlannerError as cause:
        raise refusal(cause.detail, cause.remedy, code=cause.code) from None
    if micros < 0:
        raise refusal("the duration is negative", "give a duration of zero or more")
    return micros


#: The name of a stream, alias or column.
Name = Annotated[str, Field(strict=True, pattern=f"^{NAME.pattern}$")]
Text = Annotated[str, Field(strict=True)]
#: A number of tuples or values, at least 0.
Amount = Annotated[float, Field(strict=True, ge=0, le=MOST, allow_inf_nan=False)]
#: A number above 0 in a document.
Positive = Annotated[float, Field(strict=True, gt=0, le=MOST, allow_inf_nan=False)]
#: A fraction from 0 to 1 in a document.
Share = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
#: A whole number, at least 0 (or at least 1).
Whole = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
Count = Annotated[Whole, Field(ge=1)]
Flag = Annotated[bool, Field(strict=True)]
#: A duration as text in a document, read as microseconds, not negative.
Duration = Annotated[int, PlainValidator(_duration_field)]

_TAGS = ("(one)", "(each)")
#: Names in error paths of the alternatives of a union: a single value, or a mapping of values.
EITHER = Discriminator(lambda value: _TAGS[isinstance(value, Mapping)])
#: Either one number for all, or a mapping from name to number.
OneOrEach = Annotated[Annotated[_T, Tag("(one)")] | Annotated[dict[str, _T], Tag("(each)")], EITHER]
