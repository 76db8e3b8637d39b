"""Lets tests in the subfolders import the modules of this folder."""
