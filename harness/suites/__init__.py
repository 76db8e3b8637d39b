"""Suites of problems measured into one file, and gates that judge what was measured."""
