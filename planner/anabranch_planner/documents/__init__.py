"""Documents as plain values: strict YAML, and readers that name the field."""
