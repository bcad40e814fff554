"""Input of streams: planned offsets, loads, back-pressure, assignment to tasks, decoding."""
