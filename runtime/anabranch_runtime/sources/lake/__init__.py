"""Sources that read tables of a lake: a snapshot, then the files of later commits."""
