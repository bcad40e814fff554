"""Translation of other dialects to Spark's: types, operators, functions, aggregates."""
