"""Input of streams: planned offsets, loads, back-pressure, pieces dealt to tasks, decoding."""
