"""Access control: tokens, roles, routes that check both and JSON bodies, the audit log."""
