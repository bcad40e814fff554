"""Compilation of all kernels of this room for the types in use, before the first batch.

``python -m anabranch_runtime.index.warming`` fills the Numba cache of an installation: compiling a
kernel in a batch would delay the batch by up to three seconds.
"""

from __future__ import annotations

from anabranch_runtime.index import choosing, kernels, rounds


def warm() -> None:
    """Compile all kernels of hash indexes and gathering, or load them from Numba's cache."""
    kernels.warm()
    rounds.warm()
    choosing.warm()


if __name__ == "__main__":
    warm()
