"""The functions of ``plain`` as registered users' functions, and statements that call them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from random import Random

from anabranch_contract.connectors.user_functions import (
    VARIABLE,
    FunctionKind,
    UserFunction,
    read_signature,
)
from anabranch_planner.passes import read_sql
from anabranch_planner.sql.functions import mark_calls
from anabranch_planner.sql.unresolved import Unresolved
from tests.support.functions import plain

_FILE = Path(plain.__file__)
#: Environment of tasks that may call the functions.
ENVIRONMENT = {VARIABLE: str(_FILE.parent)}
_SIGNATURES = (
    ("above(x DOUBLE, y DOUBLE) RETURNS BOOLEAN", "arrow"),
    ("below(x DOUBLE, y DOUBLE) RETURNS BOOLEAN", "pandas"),
    ("known(x DOUBLE) RETURNS BOOLEAN", "row"),
    ("begins(x STRING, y STRING) RETURNS BOOLEAN", "row"),
    ("doubled(x BIGINT) RETURNS BIGINT", "arrow"),
    ("joined(x STRING, y STRING) RETURNS STRING", "arrow"),
    ("inverse(x BIGINT) RETURNS DOUBLE", "row"),
    ("drawn(x BIGINT) RETURNS DOUBLE", "arrow"),
    ("endless(x BIGINT) RETURNS BIGINT", "arrow"),
)
#: Conditions and equivalent calls of functions.
_IN_OTHER_WORDS = tuple(
    (re.compile(pattern), other)
    for pattern, other in (
        (r"(?<![-+*/%] )\b(r\d+\.\w+) > (\d)\b(?! *[-+*/%])", r"above(\1, \2)"),
        (r"(?<![-+*/%] )\b(r\d+\.\w+) < (\d)\b(?! *[-+*/%])", r"below(\1, \2)"),
        (r"\b(r\d+\.[kv]) IS NOT NULL", r"known(\1)"),
        (r"\b(r\d+\.\w+) LIKE 'x%'", r"begins(\1, 'x')"),
    )
)


def registered() -> Mapping[str, UserFunction]:
    """Return the registered functions by name."""
    digest = hashlib.sha256(_FILE.read_bytes()).hexdigest()
    found = {}
    for text, kind in _SIGNATURES:
        name, parameters, result = read_signature(text)
        found[name] = UserFunction(
            name, tuple(parameters.values()), result, _FILE.stem, name,
            FunctionKind(kind), name != "drawn",
            500 if name == "endless" else 60_000, digest,
        )  # fmt: skip
    return found


def read(statement: str) -> Unresolved:
    """Parse ``statement``, with calls of the functions."""
    found = read_sql(statement)
    mark_calls(found, registered())
    return found


def in_other_words(statement: str, rng: Random) -> str:
    """Return ``statement`` with some conditions replaced by calls of functions."""

    def chosen(other: str, found: re.Match[str]) -> str:
        return found.expand(other) if rng.random() < 0.7 else found[0]

    for pattern, other in _IN_OTHER_WORDS:
        statement = pattern.sub(partial(chosen, other), statement)
    return statement
