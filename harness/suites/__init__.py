"""Suites of problems measured into one file, and gates that judge the results."""
