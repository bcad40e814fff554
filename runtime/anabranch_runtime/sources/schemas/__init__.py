"""Messages with schemas: fetching schemas from a registry, and dividing messages by schema."""
