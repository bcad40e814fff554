"""Access requirements of routes (*needs*, declared with :func:`needs`), and the admitted roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from anabranch_contract.rest.access import Role

_F = TypeVar("_F", bound=Callable[..., Any])

_ATTRIBUTE = "_anabranch_need"


class Need(StrEnum):
    """Access requirement of a route.

    Attributes:
        NOTHING: no token needed: liveness, and the dashboard's files.
        TOKEN: any valid token: readiness, metrics, the caller's identity.
        READ: reading streams, queries, results, plans and state.
        PUSH: sending rows to a stream.
        PLAN: running the planner. Nothing changes, but one request takes seconds of CPU time.
        EDIT: changing streams and queries.
        ADMIN: settings, tokens and the audit log.
    """

    NOTHING = "nothing"
    TOKEN = "token"
    READ = "read"
    PUSH = "push"
    PLAN = "plan"
    EDIT = "edit"
    ADMIN = "admin"


_EVERY = frozenset(Role)
_READERS = frozenset({Role.VIEWER, Role.EDITOR, Role.ADMIN})
_EDITORS = frozenset({Role.EDITOR, Role.ADMIN})

#: Access requirement -> roles that satisfy it; ``NOTHING`` is not checked.
ADMITTED: Mapping[Need, frozenset[Role]] = {
    Need.NOTHING: _EVERY,
    Need.TOKEN: _EVERY,
    Need.READ: _READERS,
    Need.PUSH: _EDITORS | {Role.WORKER},
    Need.PLAN: _EDITORS,
    Need.EDIT: _EDITORS,
    Need.ADMIN: frozenset({Role.ADMIN}),
}


def needs(need: Need) -> Callable[[_F], _F]:
    """Declare the access requirement of an endpoint's route."""

    def declare(endpoint: _F) -> _F:
        setattr(endpoint, _ATTRIBUTE, need)
        return endpoint

    return declare


def need_of(endpoint: Callable[..., Any]) -> Need:
    """Return the access requirement that an endpoint declares.

    Raises:
        TypeError: it declares none: a forgotten declaration must not open a route to all.
    """
    need = getattr(endpoint, _ATTRIBUTE, None)
    if not isinstance(need, Need):
        raise TypeError(
            f"{endpoint.__qualname__} declares no need: put @needs(...) below its route"
        )
    return need
