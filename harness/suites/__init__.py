"""Measure suites of problems into results files, and judge results by expectations."""
