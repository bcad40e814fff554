"""Registrations of users' functions: checks of the module's file, which is never executed here."""

from __future__ import annotations

import ast
import hashlib
from datetime import datetime
from pathlib import Path

from anabranch_contract.connectors.policy import AccessPolicy, listed
from anabranch_contract.connectors.user_functions import MOST_LIMIT, module_files, read_signature
from anabranch_contract.rest.functions import FunctionIn, FunctionRecord
from anabranch_planner.passes import check_function_name
from anabranch_service.durations import read_positive
from anabranch_service.errors import InvalidInput

#: Maximum size of a module in bytes.
MOST_BYTES = 10_000_000
_FLAG = "--functions NAME.py or --functions FOLDER (ANABRANCH_FUNCTIONS) of service and runtime"


def function_record(body: FunctionIn, policy: AccessPolicy, now: datetime) -> FunctionRecord:
    """Make the record of a function; its module is read, but not executed.

    Raises:
        InvalidInput: the module is not allowed or can't be read, or has no such function.
        PlannerError: the signature can't be parsed, or its name has a meaning in SQL.
    """
    name, parameters, result = read_signature(body.signature)
    attribute = body.attribute or name
    code, defined = _module(body.module, policy)
    if attribute not in defined:
        raise InvalidInput(
            "unknown-attribute",
            f"module {body.module!r} defines no {attribute!r}",
            field="attribute",
            remedy=f"it defines {listed(defined, 'nothing')}",
        )
    given = ", ".join(f"{one} {kind.upper()}" for one, kind in parameters.items())
    micros = read_positive(
        body.time_limit, "time_limit", "bad-time-limit", "no time at all", "give e.g. 10 seconds"
    )
    if micros > 1000 * MOST_LIMIT:
        raise InvalidInput(
            "bad-time-limit",
            f"a call may take {MOST_LIMIT // 1000} seconds at most",
            field="time_limit",
            remedy="compute fewer rows, or a simpler function",
        )
    record = FunctionRecord.of(
        body,
        signature=f"{name}({given}) RETURNS {result.upper()}",
        attribute=attribute,
        time_limit=max(micros // 1000, 1),
        digest=hashlib.sha256(code).hexdigest(),
        created_at=now,
    )
    check_function_name(record.to_function())
    return record


def _module(name: str, policy: AccessPolicy) -> tuple[bytes, list[str]]:
    """Return the code of a user's module, and the names that it defines (not imports)."""
    files = module_files(policy.functions, name)
    path = next((Path(file) for file in files if Path(file).is_file()), None)
    if path is None:
        raise InvalidInput(
            "module-not-allowed",
            f"there is no module {name!r} in {listed(policy.functions, 'any allowed place')}",
            field="module",
            remedy=f"allowed by {_FLAG} are further modules",
        )
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES} bytes")
        code = path.read_bytes()
        body = ast.parse(code).body
    except (OSError, ValueError, SyntaxError, RecursionError) as cause:
        raise InvalidInput(
            "malformed-module",
            f"module {name!r} can't be read: {cause}",
            field="module",
            remedy=f"correct {path}",
        ) from cause
    defined = dict[str, None]()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined[node.name] = None
        elif isinstance(node, ast.Assign):
            targets = (one.id for one in node.targets if isinstance(one, ast.Name))
            defined |= dict.fromkeys(targets)
    return code, [one for one in defined if not one.startswith("_")]
