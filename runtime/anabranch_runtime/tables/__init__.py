"""Maintained tables: rows of a query's post-join part, updated by joined rows with weights.

``words`` encodes values as 64-bit words, equal and ordered as in Spark; ``slots`` numbers distinct
tuples, ``ordered`` keeps multisets in order, ``sums`` adds exactly. By them ``aggregates`` keeps a
group's aggregates, ``groups`` grouped views, ``sessions`` session windows, ``rankings`` ranked
rows, and ``joins`` the rows of outer and ASOF joins. ``table`` is the entry point.
"""
