"""The integer program as the CLASH paper prints it, and its lists of candidates."""
