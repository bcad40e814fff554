"""Random planning problems of the CLASH paper's simulation, over which planners are compared.

``natural`` stands for section VII-C of Dossinger & Michel, which leaves details open; here it is
exactly this:

* There are N relations, each with three (``per_relation``) distinct attributes, drawn uniformly
  from a pool of A names (A = N unless given, and at least ``per_relation``).
* Two relations can be joined if they have an attribute in common, and are joined on *all* of
  them.
* A query starts with a random relation. Then it adds relations one by one, each drawn uniformly
  from the relations that can be joined with one already in the query. Sets of relations that were
  drawn before are skipped.
* Every relation has the rate 100, and 100 distinct values of every attribute and of every
  combination of attributes. A join of two relations thus has the selectivity 1/100, whatever the
  number of attributes that they share. (The selectivities of joins that form a cycle over different
  attributes are still multiplied.)

``tree`` is simpler: every two relations can be joined, on one pair of attributes that is drawn once
for the two. A query starts with a random relation and adds random ones, each joined with a random
relation that is already in the query. Sets of predicates that were drawn before are skipped.

Equal arguments give equal problems, in every process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import comb
from random import Random

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.joins import (
    AttrRef,
    Equality,
    Label,
)

#: Tuples per unit of time of every relation.
RATE = 100.0
#: Draws per requested query, after which the missing queries are found by enumeration.
DRAWS = 50
#: Maximum number of sets of relations that are enumerated.
MAX_SETS = 200_000


@dataclass(frozen=True, slots=True)
class Drawn:
    """One random query: relations and predicates, both sorted."""

    id: str
    relations: tuple[str, ...]
    predicates: tuple[Equality, ...]


@dataclass(frozen=True, slots=True)
class RandomProblem:
    """A random problem before it is converted into queries or a file.

    Attributes:
        columns: relation -> its attributes.
        wanted: number of requested queries.
        exist: number of distinct queries that exist; known at least if fewer than ``wanted`` were
            found; None: not counted, or too many to count.
        about: how the problem was made, in lines of text.
    """

    columns: Mapping[str, tuple[str, ...]]
    queries: tuple[Drawn, ...]
    wanted: int
    exist: int | None
    about: tuple[str, ...]

    @property
    def shortfall(self) -> str:
        """A note that the problem has fewer queries than wanted; empty if it has all."""
        if len(self.queries) == self.wanted:
            return ""
        found = len(self.queries)
        if self.exist == found:
            return f"only {found} distinct queries exist, {self.wanted} were asked for"
        return f"only {found} distinct queries were found, {self.wanted} were asked for"


def natural_problem(
    seed: int,
    *,
    relations: int,
    count: int,
    size: int,
    attributes: int | None = None,
    per_relation: int = 3,
) -> RandomProblem:
    """Draw a ``natural`` problem; arguments as in the module's docstring.

    If ``DRAWS`` draws per query do not give ``count`` distinct queries, all existing queries are
    enumerated, and the missing ones are drawn from these.
    """
    _require_sizes(relations, count, size)
    pool = max(relations, per_relation) if attributes is None else attributes
    if not 1 <= per_relation <= pool:
        raise _bad(
            "attributes",
            f"{per_relation} distinct attributes per relation can't be drawn from {pool}",
            "use a larger pool",
        )
    rng = Random(seed)
    names = [f"r{i}" for i in range(relations)]
    numbers = {n: sorted(rng.sample(range(pool), per_relation)) for n in names}
    columns = {n: tuple(f"a{i}" for i in numbers[n]) for n in names}
    near = _neighbours(columns)
    found: dict[tuple[str, ...], None] = {}
    for _ in range(DRAWS * count):
        if len(found) == count:
            break
        chosen = [rng.choice(names)]
        while len(chosen) < size:
            around = sorted(set().union(*(near[n] for n in chosen)).difference(chosen))
            if not around:
                break
            chosen.append(rng.choice(around))
        if len(chosen) == size:
            found.setdefault(tuple(sorted(chosen)))
    exist = None
    if len(found) < count:
        every = _connected_sets(near, size)
        if every is not None:
            exist = len(every)
            missing = [s for s in every if s not in found]
            for chosen_set in rng.sample(missing, min(len(missing), count - len(found))):
                found[chosen_set] = None
    return RandomProblem(
        columns=columns,
        queries=tuple(
            Drawn(_query_id(i, count), chosen, _shared_attributes(chosen, columns))
            for i, chosen in enumerate(found)
        ),
        wanted=count,
        exist=exist,
        about=(
            f"natural joins, seed {seed}: {relations} relations, each with {per_relation} of"
            f" {pool} attributes;",
            f"queries join {size} relations on all attributes that they have in common.",
        ),
    )


def tree_problem(
    seed: int, *, relations: int, count: int, size: int, attributes: int = 3
) -> RandomProblem:
    """Draw a ``tree`` problem; arguments as in the module's docstring.

    Each of the ``size ** (size - 2)`` trees (Cayley) over each set of relations can be drawn, and
    their predicates differ, so the problem has ``count`` queries, or all that exist.
    """
    _require_sizes(relations, count, size)
    if attributes < 1:
        raise _bad("attributes", f"there are {attributes} attributes", "use at least one")
    rng = Random(seed)
    names = [f"r{i}" for i in range(relations)]
    attribute = [f"a{i}" for i in range(attributes)]
    joins = {
        pair: (rng.choice(attribute), rng.choice(attribute))
        for pair in combinations(sorted(names), 2)
    }
    exist = comb(relations, size) * size ** (size - 2)
    found: dict[tuple[tuple[str, str], ...], None] = {}
    while len(found) < min(count, exist):
        chosen = [rng.choice(names)]
        pairs = []
        while len(chosen) < size:
            old = rng.choice(chosen)
            new = rng.choice([n for n in names if n not in chosen])
            pairs.append((min(old, new), max(old, new)))
            chosen.append(new)
        found.setdefault(tuple(sorted(pairs)))

    def drawn(number: int, pairs: Sequence[tuple[str, str]]) -> Drawn:
        predicates = [
            Equality(AttrRef(Label(one), here), AttrRef(Label(other), there))
            for one, other in pairs
            for here, there in [joins[one, other]]
        ]
        return Drawn(
            _query_id(number, count),
            tuple(sorted({name for pair in pairs for name in pair})),
            tuple(sorted(predicates, key=lambda e: (e.left, e.right))),
        )

    return RandomProblem(
        columns={n: tuple(attribute) for n in names},
        queries=tuple(drawn(i, pairs) for i, pairs in enumerate(found)),
        wanted=count,
        exist=exist,
        about=(
            f"trees, seed {seed}: {relations} relations with {attributes} attributes each, every"
            " two joinable on one pair of them;",
            f"queries join {size} relations by {size - 1} predicates.",
        ),
    )


def write_yaml(problem: RandomProblem, command: str = "") -> str:
    """Return the problem as a file for ``plan``; ``command``: the command line that made it."""
    lines = [f"# {line}" for line in (command, *problem.about, problem.shortfall) if line]
    lines.append("streams:" if problem.columns else "streams: {}")
    for name, columns in problem.columns.items():
        fields = f"rate: {RATE:g}, distinct: {RATE:g}, columns: [{', '.join(columns)}]"
        lines.append(f"  {name}: {{{fields}}}")
    lines.append("queries:" if problem.queries else "queries: {}")
    for query in problem.queries:
        predicates = ", ".join(f'"{e.left} = {e.right}"' for e in query.predicates)
        lines.append(f"  {query.id}:")
        lines.append(f"    relations: [{', '.join(query.relations)}]")
        lines.append(f"    predicates: [{predicates}]")
    return "\n".join(lines) + "\n"


def _require_sizes(relations: int, count: int, size: int) -> None:
    if count < 0:
        raise _bad("queries", f"{count} queries are asked for", "use 0 or more")
    if size < 2:
        raise _bad("size", f"a query of {size} relations is not a join", "use at least 2")
    if relations < size:
        raise _bad(
            "relations",
            f"{relations} relations are too few for queries of {size}",
            f"use at least {size}, or smaller queries",
        )


def _bad(field: str, message: str, remedy: str) -> PlannerError:
    return PlannerError("bad-environment", message, field=field, remedy=remedy)


def _query_id(number: int, count: int) -> str:
    return f"q{number:0{max(4, len(str(count - 1)))}}"


def _neighbours(columns: Mapping[str, tuple[str, ...]]) -> dict[str, frozenset[str]]:
    """Map each relation to the other relations with a common attribute."""
    having: dict[str, list[str]] = {}
    for name, attributes in columns.items():
        for attribute in attributes:
            having.setdefault(attribute, []).append(name)
    return {
        name: frozenset(n for a in attributes for n in having[a] if n != name)
        for name, attributes in columns.items()
    }


def _connected_sets(near: Mapping[str, frozenset[str]], size: int) -> list[tuple[str, ...]] | None:
    """Return every connected set of ``size`` relations, sorted; None if there are too many."""
    sets = {frozenset({name}) for name in near}
    for _ in range(size - 1):
        grown: set[frozenset[str]] = set()
        for one in sorted(sets, key=sorted):
            grown.update(one | {n} for n in frozenset().union(*(near[m] for m in one)) - one)
            if len(grown) > MAX_SETS:
                return None
        sets = grown
    return sorted(tuple(sorted(s)) for s in sets)


def _shared_attributes(
    chosen: Sequence[str], columns: Mapping[str, tuple[str, ...]]
) -> tuple[Equality, ...]:
    """Return join predicates per attribute: a chain over all relations that have it."""
    having: dict[str, list[str]] = {}
    for name in chosen:
        for attribute in columns[name]:
            having.setdefault(attribute, []).append(name)
    found = [
        Equality(AttrRef(Label(one), attribute), AttrRef(Label(other), attribute))
        for attribute, names in having.items()
        for one, other in pairwise(names)
    ]
    return tuple(sorted(found, key=lambda e: (e.left, e.right)))
