"""Roles, and the needs of routes, which stand beside the routes (:func:`needs`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from anabranch_contract.rest.access import Role

_F = TypeVar("_F", bound=Callable[..., Any])

_ATTRIBUTE = "_anabranch_need"


class Need(StrEnum):
    """Requirements of a route.

    Attributes:
        NOTHING: anybody may call it: liveness, and the dashboard's own files.
        TOKEN: any valid token: readiness, metrics, who the caller is.
        READ: to see streams, queries, results, plans and state.
        PUSH: to send rows to a stream.
        PLAN: to have the planner work. Nothing changes, but one request takes seconds of a CPU.
        EDIT: to change streams and queries.
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

#: The roles that a need admits; ``NOTHING`` is not checked.
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
    """Declare what the route of an endpoint requires of a caller."""

    def declare(endpoint: _F) -> _F:
        setattr(endpoint, _ATTRIBUTE, need)
        return endpoint

    return declare


def need_of(endpoint: Callable[..., Any]) -> Need:
    """The declared need of an endpoint.

    Raises:
        TypeError: it has none. No route is open because somebody forgot it.
    """
    need = getattr(endpoint, _ATTRIBUTE, None)
    if not isinstance(need, Need):
        raise TypeError(
            f"{endpoint.__qualname__} declares no need: put @needs(...) below its route"
        )
    return need
