"""The self-test: the slow-downs that a machine can resolve, and the file of its results."""
