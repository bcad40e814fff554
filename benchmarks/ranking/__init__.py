"""Whether the objectives of planning rank plans as measured CPU time does."""
