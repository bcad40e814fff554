"""Tables of a lake as sources: options and checks."""
