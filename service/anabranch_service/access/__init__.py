"""Access control: tokens, the administrator's first token, roles, the audit log."""
