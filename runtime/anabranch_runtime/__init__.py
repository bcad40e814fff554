"""The runtime: joins streams by a published execution plan, on workers that Spark runs."""
