"""What is measured of the family in reports, and what it is to reach."""

from harness.registry import Goal, Study

STUDIES: tuple[Study, ...] = ()
GOALS: tuple[Goal, ...] = ()
