"""What a query is: types, expressions, streams, joins, and what stands above joins."""
