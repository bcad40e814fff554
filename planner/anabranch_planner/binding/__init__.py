"""From parsed statements to typed expressions: resolved names, types, names of columns, views."""
