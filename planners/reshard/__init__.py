"""The reshard family: communication for a program, by a block that mirrors a C++ graph."""

from importlib import import_module

from planners.reshard.family import FAMILY

for _name in ("published", "ours", "paddle"):  # the order that variants are listed in
    import_module(f"planners.reshard.variants.{_name}")

__all__ = ["FAMILY"]
