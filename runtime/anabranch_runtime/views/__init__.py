"""Post-join parts of queries: views (aggregates, HAVING, ORDER BY, LIMIT) and outer joins.

A *round* has the joined rows of one batch. ``keeper`` adds rounds to the tables of queries
(``kept``: one query), delivers versions, and writes ``checkpoints``; ``rounds`` updates the state,
``clock`` computes the event time of views. If load shedding has withheld joined rows, ``left_out``
finds the affected groups and ``undecided`` the affected left rows, ``estimates`` and ``scaled``
estimate the complete aggregates, and ``parts`` reports both.
"""
