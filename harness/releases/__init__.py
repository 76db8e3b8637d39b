"""Releases of one library, installed in folders of their own and measured on the same problems."""
