"""Embedding tables: as files and as objects of TorchRec, and how their shards may be."""
