"""The asv suite for the commits of the library that asv's `project` setting names."""
