"""Where joins of streams that arrive at different hosts are placed (PMJoin)."""
