"""PostgreSQL tables: options of sources, and descriptions of tables."""
