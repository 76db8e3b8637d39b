"""Measure variants on one problem: check each, time them interleaved, compute verdicts."""
