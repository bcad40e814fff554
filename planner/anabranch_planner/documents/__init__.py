"""Reading of YAML and JSON documents (problem files, queries), with errors that name the field."""
