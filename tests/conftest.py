"""Settings for all tests: hypothesis without deadlines, and the same examples in every run."""

from hypothesis import settings

settings.register_profile("shardbench", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("shardbench")
