"""Random set operations in whole runs (:mod:`.derived`), over streams of every kind."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

from tests.support.worlds.changed_views import COLUMNS
from tests.support.worlds.derived import OTHERS, Derived
from tests.support.worlds.service import Service

#: Operands with a number ``x`` and a text ``g``.
_OPERANDS = (
    "SELECT a.v AS x, a.g FROM a",
    "SELECT a.v AS x, a.g FROM a WHERE a.k > 1",
    "SELECT a.k AS x, a.g FROM a",
    "SELECT b.w AS x, c.t AS g FROM b JOIN c ON c.v = b.w",
    "SELECT b.w AS x, a.g FROM a JOIN b ON b.k = a.k",
    "SELECT d.v AS x, d.g FROM d",
    "SELECT d.v AS x, d.g FROM d WHERE d.v < 5",
    "SELECT d.v AS x, c.t AS g FROM d JOIN c ON c.v = d.v",
    "SELECT d.v + 1 AS x, d2.g FROM d JOIN d d2 ON d2.v = d.v",
    "SELECT e.v AS x, e.g FROM e",
    "SELECT e.id AS x, e.g FROM e",
    "SELECT b.w AS x, NULL AS g FROM b",
    "SELECT 3 AS x, c.t AS g FROM c",
    "SELECT NULL AS x, c.t AS g FROM c",
    "SELECT DISTINCT a.v AS x, a.g FROM a",
    "SELECT a.v AS x, max(a.g) AS g FROM a GROUP BY a.v",
    "SELECT count(*) AS x, d.g FROM d GROUP BY d.g",
    "(SELECT a.v AS x, a.g FROM a ORDER BY a.v NULLS FIRST, a.g NULLS FIRST LIMIT 3)",
)
_OPERATIONS = ("UNION ALL", "UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT")
#: Statements over a set operation ``{u}``; ``{o}``: the same with an order.
_ABOVE = (
    "{u}",
    "{u}",
    "{u}",
    "{u} ORDER BY x DESC NULLS LAST, g NULLS FIRST LIMIT 3",
    "SELECT u.x FROM ({u}) u WHERE u.x > 2",
    "SELECT u.g, count(*) AS n, sum(u.x) AS s, max(u.x) AS m FROM ({u}) u GROUP BY u.g",
    "SELECT count(*) AS n, count(DISTINCT u.x) AS m FROM ({u}) u",
    "SELECT u.x, c.t FROM ({u}) u JOIN c ON c.v = u.x",
    "SELECT c.t, count(*) AS n FROM ({u}) u JOIN c ON c.v = u.x AND c.t = u.g GROUP BY c.t",
    "WITH u AS ({u}) SELECT u.x, w.g FROM u JOIN u w ON w.x = u.x",
    "WITH u AS ({u}), w AS ({v}) SELECT u.g, count(*) AS n FROM u JOIN w ON w.x = u.x GROUP BY u.g",
    "SELECT u.x, u.g FROM ({u}) u UNION ALL SELECT c.v, c.t FROM c",
    "SELECT u.g, count(*) AS n FROM (SELECT w.g FROM ({u}) w WHERE w.x < 6) u GROUP BY u.g",
)


def set_operation(rng: Random, readable: list[str]) -> str:
    """A random set operation of two to four operands, some in parentheses."""
    count = rng.choice((2, 2, 3, 4))
    text = ""
    for number in range(count):
        if readable and rng.random() < 0.3:
            operand = f"SELECT y.x, y.g FROM {rng.choice(readable)} y"
        elif count < 4 and rng.random() < 0.15:
            operand = f"({set_operation(rng, readable)})"
        else:
            operand = rng.choice(_OPERANDS)
        text += f" {rng.choice(_OPERATIONS)} {operand}" if number else operand
    return text


def run_seed(service: Service, folder: Path, seed: int) -> Counter[str]:
    """Random set operations, registered at random times, also over each other by name.

    Raises:
        AssertionError: a query is not what it should be.
    """
    rng = Random(seed)
    world = Derived(service, folder, rng, {**COLUMNS, **OTHERS})
    readable = list[str]()
    for number in range(rng.randint(2, 4)):
        name, u = f"q{number}", set_operation(rng, readable)
        above = rng.choice(_ABOVE)
        made = world.query(name, above.format(u=u, v=rng.choice(_OPERANDS)))
        world.events["branches"] += made["normalised"]["branches"]
        world.events["parts"] += len(made["reads"])
        if above == "{u}":
            readable.append(name)
    # Rows of streams that nothing joins are not stored: a later query would lack them.
    _activate(world)
    for _ in range(rng.randint(2, 5)):
        world.draw()
        world.turn(killed=0.25)
    world.settle()
    world.check()
    for _ in range(rng.randint(1, 3)):
        world.draw()
        world.turn(killed=0.25)
    world.settle()
    world.check()
    return world.events


def _activate(world: Derived) -> None:
    """Go on until all queries see what arrives.

    Raises:
        AssertionError: they do not.
    """
    for _ in range(40):
        world.turn()
        found = {n: world.service.get(f"/v1/queries/{n}")["status"] for n in world.statements}
        if set(found.values()) == {"active"}:
            return
    raise AssertionError(found)
