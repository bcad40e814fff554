"""Post-join parts of queries, maintained: joined rows in, changes of a table (or final rows) out.

``inputs`` keeps joined rows until Spark has read them. ``groups`` has Spark group and aggregate
them (its state, its checkpoint), ``finishing`` evaluates expressions over aggregates, ``ranking``
sorts, ``table`` keeps the former rows and derives changes. ``outer_joins`` decides the rows of
outer, semi and anti joins. Where rations have withheld joined rows, ``left_out`` finds the affected
groups, ``estimates`` and ``scaled`` estimate the complete aggregates, and ``parts`` reports both.
``versions`` puts these together, ``clock`` derives the views' event time, ``upkeep`` brings views
up to date one after the other.
"""
