"""Post-join parts of queries: maintenance of views (aggregates, HAVING, ORDER BY, LIMIT) and outer
joins from inner-join results (joined rows).

``sinks.view_inputs`` keeps joined rows until Spark has read them. ``groups`` makes Spark group and
aggregate them (with Spark's state and checkpoint), ``finishing`` evaluates expressions over
aggregates, ``ranking`` sorts, ``table`` keeps the former rows and derives changes. ``outer_joins``
and ``look_ups`` compute outer, semi and anti joins. If load shedding has withheld joined rows,
``left_out`` finds the affected groups, ``estimates`` and ``scaled`` estimate the complete
aggregates, and ``parts`` reports both. ``versions`` combines these steps, ``clock`` derives views'
event time, and ``upkeep`` updates views one after the other.
"""
