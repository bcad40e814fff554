"""Sources that read directories of files: log of found files, the feed, readers of file parts."""
