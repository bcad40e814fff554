"""Sources that read files of directories: log of found files, feed, readers of parts of files."""
