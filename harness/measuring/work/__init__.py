"""The work of a call, counted where time is not exact."""
