"""The asv suite over the commits of an upstream repository, whose library asv's `project` names."""
