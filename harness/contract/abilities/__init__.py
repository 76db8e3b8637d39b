"""The declarations of what a family may offer beside timing, one to a module."""
