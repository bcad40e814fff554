"""Stream-stream joins of Spark Structured Streaming, in this project's own environment."""
