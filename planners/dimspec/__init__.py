"""The dimspec family: ColossalAI's search for conversions from one sharding to another."""

from importlib import import_module

from planners.dimspec.family import FAMILY

for _name in ("published", "ours", "colossalai"):  # the order that variants are listed in
    import_module(f"planners.dimspec.variants.{_name}")

__all__ = ["FAMILY"]
