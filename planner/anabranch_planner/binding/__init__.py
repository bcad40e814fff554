"""Names looked up and types checked: from parsed statements to typed expressions."""
