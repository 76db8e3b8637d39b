"""Plans as JSON files: the file format, and a loader for training jobs."""
