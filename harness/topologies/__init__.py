"""Topologies: presets, users' files, capture of this machine, and checks for mistakes."""
