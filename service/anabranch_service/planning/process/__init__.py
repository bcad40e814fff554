"""Planning in a separate process, incrementally: each plan starts from the previous one."""
