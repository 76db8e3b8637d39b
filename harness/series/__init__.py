"""List, run, store and compare the releases and commits of a library."""
