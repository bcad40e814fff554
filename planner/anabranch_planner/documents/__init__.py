"""Reading of YAML and JSON documents, with errors that name the invalid field."""
