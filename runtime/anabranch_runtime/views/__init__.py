"""Post-join parts of queries: views (aggregates, HAVING, ORDER BY, LIMIT) and outer joins.

``keeper`` includes the rounds of joined rows in the tables of queries (``kept``: one query, with
tables of ``runtime/tables``), delivers versions, and writes ``checkpoints``; ``rounds`` has the
changes of the state, ``clock`` the event time of views. If load shedding has withheld joined rows,
``left_out`` finds the affected groups and ``undecided`` the affected left rows, ``estimates`` and
``scaled`` estimate the complete aggregates, and ``parts`` reports both.
"""
