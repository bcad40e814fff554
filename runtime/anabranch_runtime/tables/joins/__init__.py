"""Tables of outer and ASOF joins: results from left rows and pairs, or left and right rows."""
