"""Normalisation of bound queries to :class:`JoinQuery`: key classes, time bounds, residuals."""
