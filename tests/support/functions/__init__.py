"""Users' functions for tests: their module, and their registrations."""
