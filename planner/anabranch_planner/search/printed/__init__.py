"""The integer program as printed in the CLASH paper, and its lists of candidate orders."""
