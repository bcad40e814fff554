"""Files of a directory as a feed: their log, the feed, the reading of parts of files."""
