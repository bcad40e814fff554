"""From queries and statistics to one plan for all of them."""
