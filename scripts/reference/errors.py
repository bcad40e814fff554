"""Generates ``docs/errors.md``: codes of errors, collected from where they are raised."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from anabranch_service import errors as service_errors
from scripts.reference.table import code, table

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("contract", "planner", "service", "runtime", "client")
HEAD = """\
# Error codes

Made from the code (`make reference`). An error has a stable code, a message with its place, and a
remedy. REST answers are problem documents with these fields ([errors](rest-guide.md)); the runtime
writes them to its log, `anabranch` to standard error. A code stands below the package that raises
it; `…` is a part that depends on the case, and several rows are several cases. An error of the
contract or the planner is answered with 422. Remedies of a stopped pipeline:
[recovery](recovery.md#failures-and-remedies).
"""
_CODE: Final = re.compile(r"[a-z]+(?:-[a-z…]+)+")


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """One place that raises an error."""

    package: str
    code: str
    message: str
    remedy: str
    error: str


def page() -> str:
    """Return the text of the page."""
    lines = [HEAD]
    found = cases()
    for package in PACKAGES:
        rows = dict.fromkeys(
            (code(case.code), _status(case.error), case.message, case.remedy)
            for case in sorted(found)
            if case.package == package
        )
        service = package == "service"
        heads = ("code", "status", "message", "remedy")
        picked = (0, 1, 2, 3) if service else (0, 2, 3)
        lines += [f"## {package.capitalize()}", ""]
        lines += table([heads[i] for i in picked], ([row[i] for i in picked] for row in rows))
    return "\n".join(lines).rstrip() + "\n"


@cache
def cases() -> frozenset[Case]:
    """Return every place in the product that creates an error with a literal code."""
    bases: dict[str, set[str]] = {}
    made: set[Case] = set()
    for package in PACKAGES:
        for file in sorted((ROOT / package / f"anabranch_{package}").rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    bases.setdefault(node.name, set()).update(map(_name, node.bases))
                elif isinstance(node, ast.Call) and len(node.args) > 1:
                    made.update(_cases(package, node))
    found = _raised(made, _errors(bases))
    # A message that consists of a variable only is omitted if the code has other messages.
    said = {(case.package, case.code) for case in found if case.message != "…"}
    return frozenset(c for c in found if c.message != "…" or (c.package, c.code) not in said)


def _errors(bases: dict[str, set[str]]) -> set[str]:
    """Return the names of StructuredError and of all classes below it; ``bases``: of each class."""
    errors = {"StructuredError"}
    while new := {name for name, above in bases.items() if above & errors} - errors:
        errors |= new
    return errors


def _raised(cases: Iterable[Case], errors: set[str]) -> set[Case]:
    """Yield the cases that create errors, also by helpers that take code and message."""
    return {case for case in cases if case.error in errors or " " in case.message}


def _cases(package: str, call: ast.Call) -> Iterator[Case]:
    """Yield the cases that ``call`` creates, if it creates an error."""
    message = _text(call.args[1])
    remedy = next((_text(k.value) for k in call.keywords if k.arg == "remedy"), "")
    for text in _texts(call.args[0]):
        if _CODE.fullmatch(text):
            yield Case(package, text, message, remedy, _name(call.func))


def _status(error: str) -> str:
    kind = getattr(service_errors, error, None)
    return str(kind.status) if kind and issubclass(kind, service_errors.ServiceError) else ""


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _texts(node: ast.expr) -> list[str]:
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body), *_texts(node.orelse)]
    return [_text(node)]


def _text(node: ast.expr) -> str:
    """Return a literal's text, with … for its variable parts; … alone for any other expression."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = (p.value if isinstance(p, ast.Constant) else "…" for p in node.values)
        return "".join(map(str, parts))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.IfExp):
        return " / ".join(dict.fromkeys((_text(node.body), _text(node.orelse))))
    return "…"
