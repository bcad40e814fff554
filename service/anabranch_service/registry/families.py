"""Families: queries whose statements differ only in constants."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from anabranch_contract.queries.families import Template, template
from anabranch_service.registry.records import QueryRecord

#: Number of statements whose templates are cached.
_CACHED = 20_000


@dataclass(frozen=True, slots=True)
class QueryFamily:
    """Queries whose statements have one template.

    Attributes:
        members: newest runs, and constants of their statements, in order of registration.
    """

    statement: str
    members: tuple[tuple[QueryRecord, tuple[str, ...]], ...]

    @property
    def id(self) -> str:
        """Digest of the statement."""
        return blake2b(self.statement.encode(), digest_size=6).hexdigest()


def families(records: Iterable[QueryRecord]) -> list[QueryFamily]:
    """Return the families of two or more queries, largest first; structured queries have none."""
    found: dict[str, list[tuple[QueryRecord, tuple[str, ...]]]] = {}
    for record in records:
        if record.sql is not None and not record.part_of:
            made = _template(record.sql)
            found.setdefault(made.text, []).append((record, made.constants))
    some = [QueryFamily(text, tuple(those)) for text, those in found.items() if len(those) > 1]
    return sorted(some, key=lambda family: -len(family.members))


@lru_cache(_CACHED)
def _template(sql: str) -> Template:
    return template(sql)
