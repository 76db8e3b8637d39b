"""Settings for all tests: a busy machine is no failure."""

from hypothesis import settings

settings.register_profile("own-planners", deadline=None)
settings.load_profile("own-planners")
