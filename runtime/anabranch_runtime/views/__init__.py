"""What stands above joins, maintained: joined rows in, changes of a table out.

``inputs`` keeps joined rows until Spark has read them, ``groups`` has Spark group and aggregate
them (its state, its checkpoint), ``finishing`` evaluates what is written above aggregates,
``table`` knows the rows as they were and makes changes of what they become, ``upkeep`` brings views
up to date one after the other.
"""
