"""Functions of users: scalar functions of Python modules that the operator allows.

In an expression, the first argument of a call is a literal text that describes the function. So
workers need no registry, and calls of two versions of a function are different expressions.

>>> from anabranch_contract.queries.expressions import Column
>>> from anabranch_contract.queries.types import parse_type
>>> half = UserFunction("half", (parse_type("double"),), parse_type("double"), "prices", "half")
>>> call = half.call([Column("a", "x", parse_type("double"))])
>>> str(call) == f"half@{half.version}(a.x)", UserFunction.of(call) == half
(True, True)
>>> module_files(["/opt/prices.py", "/srv/functions"], "prices")
('/opt/prices.py', '/srv/functions/prices.py')
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from anabranch_contract.codec import Message
from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.expressions import FUNCTION, Call, Expr, Literal, terms
from anabranch_contract.queries.types import DataType, TypeKind, parse_type

#: Environment variable of service and workers: files and folders of modules, separated by colons.
VARIABLE = "ANABRANCH_FUNCTIONS"
#: Time limit of a call in milliseconds, unless a function has its own.
LIMIT = 10_000
#: Maximum time limit in milliseconds, well below the time after which the runtime repeats a batch
#: without progress.
MOST_LIMIT = 300_000
#: Maximum number of parameters of a function.
MOST_PARAMETERS = 64
_TEXT = DataType(TypeKind.STRING)
_SIGNATURE = re.compile(r"\s*(\w+)\s*\((.*)\)\s*RETURNS\s++(.*\S)\s*", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w{0,127}", re.ASCII)


class FunctionKind(StrEnum):
    """Form of a function's arguments and result: Arrow arrays, pandas Series or single values."""

    ARROW = "arrow"
    PANDAS = "pandas"
    ROW = "row"


@dataclass(frozen=True, slots=True)
class UserFunction(Message):
    """A registered function of users.

    Attributes:
        name: its name in SQL, in lower case. ``parameters``, ``result``: their types.
        module, attribute: Python module of the function, and the function's name in it.
        deterministic: whether equal arguments have equal results, in any process.
        limit: time limit of a call, in milliseconds; one call computes a whole column of values.
        digest: SHA-256 of the module's file.
    """

    name: str
    parameters: tuple[DataType, ...]
    result: DataType
    module: str
    attribute: str
    kind: FunctionKind = FunctionKind.ARROW
    deterministic: bool = True
    limit: int = LIMIT
    digest: str = ""

    @property
    def version(self) -> str:
        """Digest of all properties of the function, so that any change makes another version."""
        return hashlib.sha256(self.dumps().encode()).hexdigest()[:8]

    def call(self, args: Sequence[Expr]) -> Call:
        """Return the expression that calls the function with ``args`` of the parameters' types."""
        whole = Literal(f"{self.name}@{self.version} {self.dumps()}", _TEXT)
        return Call(FUNCTION, (whole, *args), self.result)

    @staticmethod
    def of(call: Call) -> UserFunction:
        """Return the user's function that the expression ``call`` calls."""
        first = call.args[0]
        assert isinstance(first, Literal)
        return _read(str(first.value))


@lru_cache(maxsize=1024)
def _read(text: str) -> UserFunction:
    return UserFunction.loads(text.partition(" ")[2])


def texts_of(functions: Mapping[str, UserFunction]) -> dict[str, str]:
    """Return users' functions as JSON texts, by name."""
    return {name: function.dumps() for name, function in functions.items()}


def is_deterministic(expr: Expr) -> bool:
    """Whether all users' functions in ``expr`` return equal results for equal arguments."""
    return all(
        UserFunction.of(term).deterministic
        for term in terms(expr)
        if isinstance(term, Call) and term.op == FUNCTION
    )


def read_signature(text: str) -> tuple[str, dict[str, DataType], DataType]:
    """Parse a function's ``name(parameter TYPE, ...) RETURNS TYPE``: name, parameters, result.

    Raises:
        PlannerError: ``bad-signature`` or ``unknown-type``.

    >>> read_signature("Pick(m map<string, decimal(9,2)>, k string) returns double")
    ('pick', {'m': 'map<string,decimal(9,2)>', 'k': 'string'}, 'double')
    """
    found = _SIGNATURE.fullmatch(text)
    if found is None or not _NAME.fullmatch(found[1]):
        raise _bad(f"{text[:200]!r} is not a signature")
    parameters = dict[str, DataType]()
    for part in _parts(found[2]):
        name, _, kind = part.strip().partition(" ")
        if not _NAME.fullmatch(name) or not kind.strip() or name in parameters:
            raise _bad(f"{part.strip()[:200]!r} is not a parameter, or its name is there twice")
        parameters[name] = _type(kind.strip())
    if not 1 <= len(parameters) <= MOST_PARAMETERS:
        raise _bad(f"it has {len(parameters)} parameters, which are 1 to {MOST_PARAMETERS}")
    return found[1].lower(), parameters, _type(found[3])


def _type(text: str) -> DataType:
    """Parse the text of a type in a function's signature."""
    try:
        found = parse_type(text)
    except PlannerError as cause:
        raise cause.moved(field="signature") from None
    if found.has(TypeKind.VARIANT):
        raise PlannerError(
            "unknown-type",
            f"a function of {text}",
            field="signature",
            remedy="declare it as string, and call it with to_json(v)",
        )
    return found


def _parts(text: str) -> list[str]:
    """Split a signature's ``text`` at the commas outside of all brackets."""
    parts, depth = [""], 0
    for character in text if text.strip() else "":
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part or len(parts) > 1]


def _bad(message: str) -> PlannerError:
    remedy = "write name(parameter TYPE, ...) RETURNS TYPE, such as half(x DOUBLE) RETURNS DOUBLE"
    return PlannerError("bad-signature", message, field="signature", remedy=remedy)


def module_files(allowed: Sequence[str], module: str) -> tuple[str, ...]:
    """Return the possible paths of the file of ``module``; the first existing one is used.

    Args:
        allowed: files NAME.py of modules NAME, and folders of modules.
    """
    inside, last = module.replace(".", "/") + ".py", f"{module}.py"
    found = []
    for place in allowed:
        if not place.endswith(".py"):
            found.append(f"{place.rstrip('/')}/{inside}")
        elif place.rpartition("/")[2] == last:
            found.append(place)
    return tuple(found)
