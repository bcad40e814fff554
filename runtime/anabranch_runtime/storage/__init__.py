"""Files on disk or in an object store: documents, segments, partial results over them."""
