"""The self-test measures which slow-downs a machine can detect, and stores the results."""
