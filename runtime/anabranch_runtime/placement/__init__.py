"""Placement of partitions on hosts: moves between epochs, and hot values on several hosts."""
