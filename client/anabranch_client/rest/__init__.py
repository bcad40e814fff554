"""The Python client of the REST API: calls, pushed rows, results as Arrow tables, live results."""
