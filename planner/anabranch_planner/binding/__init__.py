"""Name resolution and type checking: from parsed statements to typed expressions."""
