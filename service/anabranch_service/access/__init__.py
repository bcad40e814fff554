"""Access control: tokens, also the administrator's first one, roles, the audit log."""
