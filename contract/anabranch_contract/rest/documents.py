"""Base classes of REST requests and answers, and the types of their names, texts and times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from typing import Annotated, Any, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    create_model,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError

from anabranch_contract.body import READING, Body, described, empty, meanings

MAX_TEXT = 100_000


def printable(text: str) -> str:
    """Refuse control characters, since names are part of file names, edges and terminal output."""
    if not text.isprintable():
        raise PydanticCustomError("bad-name", "must not contain control characters")
    return text


def distinct(texts: list[str]) -> list[str]:
    """Refuse duplicate texts in a list of a request."""
    if len(set(texts)) < len(texts):
        raise PydanticCustomError("given-twice", "must not have the same entry twice")
    return texts


StreamName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$", examples=["orders"])]
QueryName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$", examples=["late-orders"])
]
#: Keys for a query's name in requests; earlier releases called it `id`.
NAME_KEYS = AliasChoices("name", "id")
#: The name of a query, which means its newest run, or the name of one of its runs.
RunName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(~[0-9]{1,9})?$",
        examples=["late-orders", "late-orders~2"],
    ),
]
ColumnName = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(printable)]
Duration = Annotated[str, Field(min_length=1, max_length=64, examples=["10 minutes", "PT1H"])]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
#: Byte order mark at the beginning of a text file; not a part of the text.
BOM = "\ufeff"
#: A statement, without the byte order mark of the file that it was read from.
StatementText = Annotated[Text, AfterValidator(lambda text: text.removeprefix(BOM))]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def iso_time(micros: int | None) -> str | None:
    """Convert microseconds since 1970 to the REST API's ISO 8601 text in UTC; None stays None.

    >>> iso_time(0)
    '1970-01-01T00:00:00Z'
    """
    if micros is None:
        return None
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    except OverflowError:
        return None
    return moment.isoformat().replace("+00:00", "Z")


def _text_of_time(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if value and isinstance(value, str) and datetime.fromisoformat(value).tzinfo is None:
        raise ValueError("a time needs a time zone")
    return value


#: A point in time as ISO 8601 text with a time zone; a ``datetime`` is converted.
Time = Annotated[
    str, BeforeValidator(_text_of_time), WithJsonSchema({"type": "string", "format": "date-time"})
]


def _known_or_text(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError:
        if isinstance(value, str):
            return value
        raise


_Choice = TypeVar("_Choice")
_Body = TypeVar("_Body", bound=Body)
_Kind = TypeVar("_Kind", bound="type[Document]")

#: An enumeration in an answer; a client keeps unknown values of a newer service as text.
Open = Annotated[_Choice, WrapValidator(_known_or_text)]


class Document(BaseModel):
    """Base of all answers: the service writes them, the client reads them."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def read(cls, document: Any) -> Self:
        """Parse an answer by a service of any release: unknown fields of a newer release are kept,
        and fields that an older release lacks become None or empty.

        Raises:
            ValidationError: the document is not such an answer.
        """
        return cls.model_validate(document, extra="allow", context=READING)

    @classmethod
    def of(cls, value: object, **others: Any) -> Self:
        """Make the answer from the fields ``others`` and, for all other fields, the attributes of
        ``value`` with the same names. Fields of nested answers are filled in the same way."""
        names = cls.model_fields.keys() - others.keys()
        own = {name: getattr(value, name) for name in names if hasattr(value, name)}
        return cls.model_validate({**own, **others}, from_attributes=True)

    @model_validator(mode="before")
    @classmethod
    def _absent_is_empty(cls, given: Any, info: ValidationInfo) -> Any:
        if info.context is not READING or not isinstance(given, dict):
            return given
        absent = cls.empties()
        return {**absent, **given} if given.keys() & absent.keys() or not absent else given

    @classmethod
    @cache
    def empties(cls) -> dict[str, Any]:
        """Return the answer's required fields, each with None or the empty value of its type."""
        fields = cls.model_fields.items()
        return {name: empty(field.annotation) for name, field in fields if field.is_required()}

    @classmethod
    def meaning(cls, name: str) -> str:
        """Return the meaning of an answer's field, from a docstring or from the field's type."""
        return meanings(cls).get(name) or cls.model_fields[name].description or ""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        return described(cls, core, handler)

    def document(self) -> dict[str, Any]:
        """Return the answer as JSON, including unknown fields."""
        return {name: document(value) for name, value in self}

    def __getitem__(self, name: str) -> Any:
        """Return a field by its name in the JSON document."""
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None


def read_body(kind: type[_Body], document: Any) -> _Body:
    """Parse an answer that is not a :class:`Document`, from a service of any release.

    Raises:
        ValidationError: the document is not such an answer.
    """
    return TypeAdapter(kind).validate_python(document, context=READING)


def document(value: Any) -> Any:
    """Return an answer, or a part of it, as JSON, including unknown fields."""
    if isinstance(value, Document | Body):
        value = value.document()
    if isinstance(value, dict):
        return {name: document(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [document(part) for part in value]
    return str(value) if isinstance(value, Enum) else value


def examples(*bodies: dict[str, Any]) -> ConfigDict:
    """Return a request's model configuration with example bodies for the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": list(bodies)})


class Closed(Document):
    """Base of REST requests and stored records, in which unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


def with_fields(body: _Kind, fields: dict[str, tuple[Any, FieldInfo]]) -> _Kind:
    """Return a subclass of the request ``body`` with additional fields."""
    make: Any = create_model
    names = {"__module__": body.__module__, "__doc__": body.__doc__}
    made: _Kind = make(body.__name__, __base__=body, **names, **fields)
    return made


def nullable(source: type[Document], name: str) -> bool:
    """Whether a field of the answer ``source`` may be null."""
    field = source.model_fields.get(name)
    return field is not None and type(None) in get_args(field.annotation)


def changes_of(source: type[Document], *names: str, null: str = "") -> Callable[[_Kind], _Kind]:
    """Add the fields ``names`` of ``source`` (all if none) to a request body as optional fields.

    Args:
        null: meaning of null in fields that may be null in ``source``.
    """

    def field(name: str) -> tuple[Any, FieldInfo]:
        whole = source.model_fields[name]
        text = source.meaning(name)
        text = f"{text} {null}" if nullable(source, name) else text
        # Bounds and validators apply to the type without null.
        annotated: Any = Annotated
        kind: Any = annotated[whole.annotation, Field(), *whole.metadata]
        given: Any = Field(default=None, description=text, examples=whole.examples)
        return kind | None, given

    return lambda body: with_fields(body, {n: field(n) for n in names or source.model_fields})
