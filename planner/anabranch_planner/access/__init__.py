"""What a registration may ask for: formats, options, paths, hosts, secrets, keys, sizes."""
