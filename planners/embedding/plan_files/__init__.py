"""Plans as JSON files: the document, and how a training job loads it."""
