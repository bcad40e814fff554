"""Types, documents and errors that planner, service, runtime and client share. No I/O."""
