"""Seeds of the random scenarios that the tests run.

Of seeds "by default", tests choose some for ``make test`` (:func:`few`), which still have all
features that the test requires.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import pytest
from hypothesis import settings

#: By ``anabranch replay``, the first one by default. Few, but together they have all of
#: ``features.WANTED`` (``test_draw.py``).
FEW = (1, 3, 7, 10)
#: By ``anabranch replay``, in ``make test-full``.
MANY = tuple(seed for seed in range(64) if seed not in FEW)
#: In one Spark session, in ``make test-full``.
SPARK = tuple(range(1000, 1200))
#: In this process, by default. Few, but together they have all of ``features.WANTED_OF_RUNS``. A
#: seed that finds an error is added with the error: in 40105 the batch of a revision begins an
#: epoch without a ruleset, so the next batch runs the revision.
LOCAL_FEW = (3, 4, 5, 6, 7, 8, 9, 10, 12, 32, 40105)
#: In this process, in ``make test-full``.
LOCAL_MANY = tuple(range(2000))
#: In this process with ttls, by default: ttls become longer and shorter, and hide older tuples. 200
#: finds a ``visible_from`` that outlives its activation.
TTL_FEW = (200, 3004, 3007)
#: In this process with ttls, in ``make test-full``.
TTL_MANY = tuple(range(3000, 3300))
#: With ttls by ``anabranch replay``: queries with several activations that all have results.
TTL_REPLAYS = (1,)

#: In this process with streams that keep the latest row, by default, and in ``make test-full``.
LATEST_FEW = (4, 5, 10, 13)
LATEST_MANY = tuple(range(4000, 4300))
#: The same through ``anabranch replay``.
LATEST_REPLAYS = (2,)


#: In this process with queries in unusual syntax, by default and in ``make test-full``; and by
#: ``anabranch replay``, with some 500 queries.
RESPELLED_FEW = (37, 201, 210, 275)
RESPELLED_MANY = tuple(range(5000, 5300))
THETA_FEW = (1, 2, 5)
THETA_MANY = tuple(range(6000, 6200))
RESPELLED_REPLAYS = tuple(range(5500, 5650))

#: In this process with parts of filters checked after joining, by default and in ``make
#: test-full``.
RELAXED_FEW = (3, 5, 7)
RELAXED_MANY = tuple(range(6000, 6300))

#: In this process with a random revision before every batch, by default and in ``make test-full``.
REVISED_FEW = (4, 7, 8, 9, 10, 12)
REVISED_MANY = tuple(range(7000, 7300))

#: Many different queries with faults of every kind, by default and in ``make test-full``. In 6 two
#: aliases of a stream exchange their labels when a ttl changes.
CROWDED_FEW = (6,)
CROWDED_MANY = tuple(range(12_000, 14_000))

#: In this process with plans by dpPick, by default and in ``make test-full``.
PICKED_FEW = (9615, 9616, 9619, 9623, 9625, 9629)
PICKED_MANY = tuple(range(9600, 9800))

#: In this process with random rations in most batches, by default and in ``make test-full``.
RATIONED_FEW = (5, 23, 28, 37, 54)
RATIONED_MANY = tuple(range(8000, 8300))
#: The same, with catch-up of most withheld results. 3 forgives a half-paid debt; in 81 an owed row
#: arrives too late for all later tuples.
OWED_FEW = (3, 81, 144, 164, 219)
OWED_MANY = tuple(range(8500, 8800))

#: In this process with an age limit of results. In seed 3 some owed results are still fresh at
#: catch-up; in most seeds none are, and the debt is forgiven.
FRESH_FEW = (4, 7, 9, 5)
FRESH_MANY = tuple(range(9000, 9150))

#: In this process with queries that emit past results, by default and in ``make test-full``.
PAST_FEW = (10, 11, 15)
PAST_MANY = tuple(range(9500, 9800))


def mostly_slow(cases: Iterable[Any], fast: int = 1) -> list[Any]:
    """Return parameters of a test: the first ``fast`` cases by default, the others in ``make
    test-full``.

    >>> [getattr(one, "values", one) for one in mostly_slow([7, 8, 9], 2)]
    [7, 8, (9,)]
    """
    return _mostly(pytest.mark.slow, cases, fast)


def mostly_e2e(cases: Iterable[Any], fast: int = 1) -> list[Any]:
    """Return parameters of a test: ``fast`` cases by default, the others in ``make test-e2e``."""
    return _mostly(pytest.mark.e2e, cases, fast)


def _mostly(mark: pytest.MarkDecorator, cases: Iterable[Any], fast: int) -> list[Any]:
    rest = iter(cases)
    first = list(islice(rest, fast))
    return [*first, *(pytest.param(one, marks=mark) for one in rest)]


def fewer_examples(count: int) -> settings:
    """Settings of a slow property: ``count`` examples by default, all in the profile ``deep``."""
    quick = settings.default == settings.get_profile("dev")
    return settings(max_examples=count) if quick else settings()


def few(seeds: Sequence[int], *fast: int) -> list[Any]:
    """Return parameters of a test: the seeds ``fast`` by default, all of them in ``make
    test-full``.

    >>> [getattr(one, "values", one) for one in few((7, 8, 9), 8)]
    [(8,), ((7, 8, 9),)]
    """
    return mostly_slow([fast, tuple(seeds)])


def parts(seeds: Sequence[int], length: int) -> list[tuple[int, ...]]:
    """Cut ``seeds`` into runs of ``length``.

    >>> parts(range(5), 2)
    [(0, 1), (2, 3), (4,)]
    """
    return [tuple(seeds[at : at + length]) for at in range(0, len(seeds), length)]


#: In this process with retained streams, by default and in ``make test-full``. In 905062 a retained
#: stream has superseded tuples before a query reads it.
RETAINED_FEW = (3, 9, 12, 905062)
RETAINED_MANY = tuple(range(9800, 10000))

#: In this process with tables, by default and in ``make test-full``. In 12 one query joins a stream
#: with tables only, and a later query joins it with streams.
TABLES_FEW = (2, 12, 24)
TABLES_MANY = tuple(range(10_000, 10_200))

#: In this process with tables that queries look up or follow, by default and in ``make test-full``;
#: and on several hosts.
FOLLOWED_FEW = (17, 19, 26, 49)
FOLLOWED_HOSTS = (20, 44)
FOLLOWED_MANY = tuple(range(10_850, 11_000))

#: Outer joins with tables, by default and in ``make test-full``.
LOOK_UPS_FEW = tuple(range(6))
LOOK_UPS_MANY = tuple(range(10_200, 10_400))

#: In this process with tasks on several hosts, by default and in ``make test-full``.
HOSTS_FEW = (0, 3, 4, 5, 7, 8, 9, 10, 12)
#: The same with a revision before every batch. 25 and 28 fail if all tuples of a hot value are sent
#: to one host, 20 and 28 if a hot value is forgotten before its last spread rows.
HOT_FEW = (20, 25, 28, 36)
HOSTS_MANY = tuple(range(9000, 9100))

#: In this process with streams of changes, by default and in ``make test-full``. In 940003 a query
#: ends when it has emitted only inserts of its past, without their deletes.
CHANGES_FEW = (1, 7, 11, 940003)
CHANGES_MANY = tuple(range(10_400, 10_700))
#: The same on several hosts. In 961003 a query ends before it has emitted any of its past.
CHANGES_HOSTS = (*CHANGES_MANY[:50], 961003)

#: Views over streams of changes, by default and in ``make test-full``.
CHANGED_VIEWS_FEW = tuple(range(6))
CHANGED_VIEWS_MANY = tuple(range(100, 600))
#: The same with streams of upserts, on one host and on several. In 10, rows whose predecessor was
#: found are sent together with rows whose predecessor was not.
UPSERTS_FEW = (3, 7)
UPSERTS_HOSTS = (14, 22)
UPSERTS_MANY = tuple(range(10_700, 10_850))
#: Outer joins whose rows are kept, by default and in ``make test-full``.
# 129: two aliases of one stream with past results of different batches.
KEPT_OUTER_FEW = (*range(6), 129)
KEPT_OUTER_MANY = tuple(range(100, 500))
#: Set operations, and statements with subqueries in expressions, through the service.
SET_OPERATIONS_FEW = (0, 1, 2)
SUBQUERIES_FEW = (0, 1)
#: Chains of outer joins in whole runs, by default and in ``make test-full``.
CHAINS_FEW = (1, 2)
CHAINS_MANY = tuple(range(100, 200))
#: Queries of all kinds in one pipeline, by default and in ``make test-full``.
COMBINED_FEW = tuple(range(12))
COMBINED_MANY = tuple(range(100, 600))
#: Seeds that have failed. 1: a column of a subquery had a value in rows without a partner. 1029: a
#: part over one stream lacked the rows from before its activation. 218: tuples that matched both in
#: a store and in its gaps were counted twice. 320: a part did not find a query that only it reads.
#: 1815: a condition with a subquery was joined below a FULL JOIN. 1855: a subquery with a FULL JOIN
#: became a part without versions.
COMBINED_FAILED = (1, 1029, 218, 320, 1815, 1855, 950_037, 951_026)
