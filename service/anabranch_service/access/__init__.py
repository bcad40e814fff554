"""Who may do what: tokens, roles, the audit log."""
