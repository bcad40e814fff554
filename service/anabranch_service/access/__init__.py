"""Access control: tokens, roles, the audit log."""
