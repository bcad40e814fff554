"""The state of one multi-way join operator in one process, behind one protocol."""
