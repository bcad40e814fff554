"""What is registered: records, where Redis keeps them, and what a registration may hold."""
