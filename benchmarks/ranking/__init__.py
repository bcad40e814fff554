"""Benchmark of planning objectives: do they rank plans as measured CPU time does?"""
