"""Names, texts and durations of requests, and the base of their bodies."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

MAX_TEXT = 100_000


def printable(text: str) -> str:
    """Refuse control characters: names end up in file names, edges and terminals."""
    if not text.isprintable():
        raise PydanticCustomError("bad-name", "must not contain control characters")
    return text


StreamName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$", examples=["orders"])]
QueryName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$", examples=["late-orders"])
]
ColumnName = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(printable)]
Duration = Annotated[str, Field(min_length=1, max_length=64, examples=["10 minutes", "PT1H"])]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]


class Body(BaseModel):
    """Base of all request bodies."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
