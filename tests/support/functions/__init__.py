"""Users' functions of tests: their module, and their registrations."""
