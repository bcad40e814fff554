"""Messages with schemas: fetching of the schemas, and the division of messages by them."""
