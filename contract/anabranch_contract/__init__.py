"""What planner, service, runtime and client share: types, documents, errors. No I/O."""
