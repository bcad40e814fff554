"""Sources that read Delta and Iceberg tables: a snapshot, then the files of later commits."""
