"""The seeds of the random scenarios that the end-to-end tests replay."""

from __future__ import annotations

#: Few, but with everything in them that the generator makes (``test_scenarios.py`` sees to it).
FEW = (0, 18, 30, 37)
#: The rest of at least sixty.
MANY = tuple(seed for seed in range(64) if seed not in FEW)
