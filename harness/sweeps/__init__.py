"""Many problems into one results file, in this process or over an executor."""
