"""Topologies: presets, files of users, capture of a machine, and the traps in them."""
