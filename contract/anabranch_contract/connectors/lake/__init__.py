"""Tables of a data lake (Delta, Iceberg) as sources: options and checks."""
