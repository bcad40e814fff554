"""Post-join parts of queries, maintained: joined rows in, changes of a table (or final rows) out.

``inputs`` keeps joined rows until Spark has read them. ``groups`` has Spark group and aggregate
them (its state, its checkpoint), ``finishing`` evaluates expressions over aggregates,
``ranking`` sorts, ``table`` knows the rows as they were and makes changes of what they become.
``outer_joins`` decides the rows of outer, semi and anti joins. Where rations have withheld joined
rows, ``left_out`` says of which groups, ``estimates`` and ``scaled`` what all rows would give, and
``parts`` tells it. ``versions`` puts these together,
``clock`` says how far event time has come, ``upkeep`` brings views up to date one after the other.
"""
