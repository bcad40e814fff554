"""Runs of a query: the units that the planner plans and the runtime runs.

A new run begins when a query's SQL is replaced, when it is resumed after a pause, and when its id
is registered again after it has ended. A run has its own activation, its own part of the plan and
its own results folder, so it can't be mistaken for an earlier run. The first run has the query's
name.
"""

from __future__ import annotations

from anabranch_contract.queries.outer_joins import registered

#: Separator between a query's id, which can't contain it, and the number of a run.
SEPARATOR = "~"


def run_name(query: str, number: int) -> str:
    """Return the name of a query's run; ``number`` counts from 1.

    >>> run_name("unpaid", 1), run_name("unpaid", 2)
    ('unpaid', 'unpaid~2')
    """
    return query if number == 1 else f"{query}{SEPARATOR}{number}"


def query_of(run: str) -> str:
    """Return the id of the query of a run, or of a join of a run.

    >>> query_of("unpaid"), query_of("unpaid~2"), query_of("unpaid~2+left")
    ('unpaid', 'unpaid', 'unpaid')
    """
    return registered(run).partition(SEPARATOR)[0]


def number_of(run: str) -> int:
    """Return the number of a run among its query's runs, from 1.

    >>> number_of("unpaid"), number_of("unpaid~2")
    (1, 2)
    """
    number = registered(run).partition(SEPARATOR)[2]
    return int(number) if number.isdecimal() else 1


def exact_name(run: str) -> str:
    """Return the name of a run with its number, so that it never means a later run of the query.

    >>> exact_name("unpaid"), exact_name("unpaid~2")
    ('unpaid~1', 'unpaid~2')
    """
    return run if SEPARATOR in run else f"{run}{SEPARATOR}1"


def next_run(run: str) -> str:
    """Return the name of the query's run after ``run``.

    >>> next_run("unpaid"), next_run("unpaid~2")
    ('unpaid~2', 'unpaid~3')
    """
    return run_name(query_of(run), number_of(run) + 1)


def part_name(run: str, number: int) -> str:
    """Return the name of the ``number``-th part (from 1) of the statement of a run.

    >>> part_name("unpaid", 1), part_name("unpaid~2", 1)
    ('unpaid.1', 'unpaid.2.1')
    """
    place = number_of(run)
    return f"{query_of(run)}{'' if place == 1 else f'.{place}'}.{number}"
