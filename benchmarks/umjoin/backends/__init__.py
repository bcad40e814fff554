"""State backends of a multi-way join operator in one process, behind one protocol."""
