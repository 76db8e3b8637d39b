"""Run callables in child processes under limits, and real libraries in their own environments."""
