"""Random set operations (UNION etc.) in whole runs over streams of every kind (:mod:`.derived`)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

from tests.support.worlds.changed_views import COLUMNS
from tests.support.worlds.derived import OTHERS, Derived
from tests.support.worlds.service import Service

#: Operands with a number ``x`` and a text ``g``, over streams with inserts and deletes.
_PLAIN = (
    "SELECT a.v AS x, a.g FROM a",
    "SELECT a.v AS x, a.g FROM a WHERE a.k > 1",
    "SELECT a.k AS x, a.g FROM a",
    "SELECT b.w AS x, c.t AS g FROM b JOIN c ON c.v = b.w",
    "SELECT b.w AS x, a.g FROM a JOIN b ON b.k = a.k",
    "SELECT a2.v + 1 AS x, a.g FROM a JOIN a a2 ON a2.k = a.k AND a2.v < a.v",
    "SELECT b.w AS x, a.g FROM a JOIN b ON b.k = a.k JOIN c ON c.v = a.v",
    "SELECT c.v AS x, c.t AS g FROM c",
)
#: The same operands with a constant, which no join can compare.
_CONSTANT = (
    "SELECT b.w AS x, CAST(NULL AS STRING) AS g FROM b",
    "SELECT 3 AS x, c.t AS g FROM c",
    "SELECT CAST(NULL AS INT) AS x, c.t AS g FROM c",
)
#: Operands with nested queries.
_NESTED = (
    "SELECT DISTINCT a.v AS x, a.g FROM a",
    "SELECT a.v AS x, max(a.g) AS g FROM a GROUP BY a.v",
    "(SELECT a.v AS x, a.g FROM a ORDER BY a.v NULLS FIRST, a.g NULLS FIRST LIMIT 3)",
    "SELECT a.v AS x, c.t AS g FROM a LEFT JOIN c ON c.v = a.k",
)
#: Operands over a stream of upserts.
_UPSERTS = ("SELECT e.v AS x, e.g FROM e", "SELECT e.id AS x, e.g FROM e")
#: Operands over a stream without deletes, whose rows are not kept for later queries.
_APPEND = (
    "SELECT d.v AS x, d.g FROM d",
    "SELECT d.v AS x, d.g FROM d WHERE d.v < 5",
    "SELECT d.v AS x, c.t AS g FROM d JOIN c ON c.v = d.v",
    "SELECT d.v + 1 AS x, d2.g FROM d JOIN d d2 ON d2.v = d.v",
    "SELECT count(*) AS x, d.g FROM d GROUP BY d.g",
)
_OPERATIONS = (
    *("UNION ALL",) * 5, "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL",
)  # fmt: skip
#: Statements over a set operation ``{u}`` and an operand ``{v}``.
_ABOVE = (
    "{u}",
    "{u}",
    "{u}",
    "{u} ORDER BY x DESC NULLS LAST, g NULLS FIRST LIMIT 3",
    "{u} ORDER BY 2 NULLS FIRST, 1 NULLS FIRST LIMIT 4",
    "SELECT u.x FROM ({u}) u WHERE u.x > 2",
    "SELECT u.g, count(*) AS n, sum(u.x) AS s, max(u.x) AS m FROM ({u}) u GROUP BY u.g",
    "SELECT count(*) AS n, count(DISTINCT u.g) AS m FROM ({u}) u",
    "SELECT DISTINCT u.g FROM ({u}) u",
    "SELECT u.x, u.g FROM ({u}) u UNION ALL SELECT c.v, c.t FROM c",
    "SELECT u.g, count(*) AS n FROM (SELECT w.g FROM ({u}) w WHERE w.x < 6) u GROUP BY u.g",
)
#: Statements with outer joins on ``x``, beside which a union is a table.
_OUTER = (
    "SELECT u.x, c.t FROM ({u}) u LEFT JOIN c ON c.v = u.x",
    "SELECT c.t, count(u.x) AS n FROM c LEFT JOIN ({u}) u ON u.x = c.v GROUP BY c.t",
    "WITH u AS ({u}) SELECT u.x, u.g FROM u ANTI JOIN u w ON w.x = u.x + 1",
)
#: Statements with joins on ``x``.
_JOINED = (
    "SELECT u.x, c.t FROM ({u}) u JOIN c ON c.v = u.x",
    "SELECT c.t, count(*) AS n FROM ({u}) u JOIN c ON c.v = u.x AND c.t = u.g GROUP BY c.t",
    "WITH u AS ({u}) SELECT u.x, w.g FROM u JOIN u w ON w.x = u.x",
    "WITH u AS ({u}), w AS ({v}) SELECT u.g, count(*) AS n FROM u JOIN w ON w.x = u.x GROUP BY u.g",
)


def set_operation(rng: Random, operands: tuple[str, ...], readable: list[str]) -> str:
    """Return a random set operation of two to four operands, some in parentheses.

    Args:
        readable: names of queries to read.
    """
    count = rng.choice((2, 2, 3, 4))
    text = ""
    for number in range(count):
        if readable and rng.random() < 0.3:
            operand = f"SELECT y.x, y.g FROM {rng.choice(readable)} y"
        elif count < 4 and rng.random() < 0.15:
            operand = f"({set_operation(rng, operands, readable)})"
        else:
            operand = rng.choice(operands)
        operation = rng.choice(_OPERATIONS)
        text += f" {operation} {operand}" if number else operand
    return text


def run_seed(service: Service, folder: Path, seed: int) -> Counter[str]:
    """Run random set operations, registered at random times, which also read each other by name.

    Raises:
        AssertionError: a query is not what it should be.
    """
    rng = Random(seed)
    world = Derived(service, folder, rng, {**COLUMNS, **OTHERS})
    early, late = list[str](), list[str]()
    # Rows of streams without deletes are not kept, so queries over them are registered before the
    # first row.
    for number in range(rng.randint(1, 3)):
        _register(world, f"q{number}", early, _APPEND)
    _activate(world)
    for number in range(rng.randint(1, 3)):
        for _ in range(rng.choice((0, 0, 1, 3))):
            world.draw()
            world.turn(killed=0.25)
        _register(world, f"r{number}", late)
    for _ in range(2):
        for _ in range(rng.randint(1, 4)):
            world.draw()
            world.turn(killed=0.25)
        world.settle()
        world.check()
    return world.events


def _register(world: Derived, name: str, readable: list[str], more: tuple[str, ...] = ()) -> None:
    """Register a random statement, and list its name if its columns are ``x`` and ``g``."""
    rng = world.rng
    above = rng.choice((*_ABOVE, *_JOINED, *_OUTER))
    operands = (*_PLAIN, *_NESTED, *_UPSERTS, *more)
    if above in _ABOVE:
        operands += _CONSTANT
    u = set_operation(rng, operands, readable if above in _ABOVE else [])
    made = world.query(name, above.format(u=u, v=rng.choice((*_PLAIN, *_UPSERTS))))
    world.events["branches"] += len(made["normalised"]["branches"])
    world.events["parts"] += len(made["reads"])
    if above == "{u}":
        readable.append(name)


def _activate(world: Derived) -> None:
    """Run batches until all queries are active.

    Raises:
        AssertionError: they do not.
    """
    for _ in range(40):
        world.turn()
        found = {n: world.service.get(f"/v1/queries/{n}")["status"] for n in world.statements}
        if set(found.values()) == {"active"}:
            return
    raise AssertionError(found)
