"""Expressions over columns, evaluated as Spark does (ANSI mode, UTC)."""
