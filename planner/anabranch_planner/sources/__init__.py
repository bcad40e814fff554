"""Sources as they are registered: checked, and their expressions read."""
