"""Runs of a query: what the planner and the runtime know of it.

A query whose SQL is replaced, that is resumed after a pause, or whose id is registered again after
it has ended goes on as another run. A run has an activation, a place in the plan and a results
folder of its own, so nothing of an earlier run is taken for something of it. The first run is named
like the query.
"""

from __future__ import annotations

from anabranch_contract.queries.outer_joins import registered

#: Between a query's id, which can't have it, and the number of a run.
SEPARATOR = "~"


def run_name(query: str, number: int) -> str:
    """The name of a query's run, counted from 1.

    >>> run_name("unpaid", 1), run_name("unpaid", 2)
    ('unpaid', 'unpaid~2')
    """
    return query if number == 1 else f"{query}{SEPARATOR}{number}"


def query_of(run: str) -> str:
    """The id of the query that a run, or a join of it, belongs to.

    >>> query_of("unpaid"), query_of("unpaid~2"), query_of("unpaid~2+left")
    ('unpaid', 'unpaid', 'unpaid')
    """
    return registered(run).partition(SEPARATOR)[0]


def number_of(run: str) -> int:
    """The number of a run among its query's, from 1.

    >>> number_of("unpaid"), number_of("unpaid~2")
    (1, 2)
    """
    number = registered(run).partition(SEPARATOR)[2]
    return int(number) if number.isdecimal() else 1


def next_run(run: str) -> str:
    """The name of the run after ``run``.

    >>> next_run("unpaid"), next_run("unpaid~2")
    ('unpaid~2', 'unpaid~3')
    """
    return run_name(query_of(run), number_of(run) + 1)
