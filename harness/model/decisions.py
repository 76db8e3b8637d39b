"""The variants that a variant must decide the same as."""

from collections.abc import Mapping


def models_of(variant: str, same_as: Mapping[str, str | None]) -> list[str]:
    """Return the variants that one must decide the same as, nearest first.

    `same_as` names by variant the one whose decisions it reproduces. In a circle each stands once.
    """
    chain = [variant]
    while (target := same_as.get(chain[-1])) and target not in chain:
        chain.append(target)
    return chain[1:]
