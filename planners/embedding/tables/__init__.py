"""Embedding tables: their files, their TorchRec objects, and checks of their shards."""
