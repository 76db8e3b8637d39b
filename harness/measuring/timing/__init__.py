"""Time calls of several variants, compute ratios with intervals, and turn them into verdicts."""
