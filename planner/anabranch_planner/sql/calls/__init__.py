"""Translation of functions and operators of other dialects to Spark's."""
