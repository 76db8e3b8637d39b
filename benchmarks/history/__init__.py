"""The asv suite over the commits of the library that asv's `project` names."""
