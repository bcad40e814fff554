"""Sources of streams: files, Redis Streams, Spark's own sources, recordings, results of queries."""
