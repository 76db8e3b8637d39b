"""The variants, which register in the order in which they are listed."""

from importlib import import_module

_ORDER = ("ladder", "proposers", "planners")

for _name in _ORDER:
    import_module(f"{__name__}.{_name}")
