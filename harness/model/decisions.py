"""The variants that a variant must decide the same as."""

from collections.abc import Mapping


def models_of(variant: str, same_as: Mapping[str, str | None]) -> list[str]:
    """Return the variants with the decision that a variant must make, nearest first.

    `same_as` maps a variant to the one it reproduces. In a circle, every variant appears once.
    """
    chain = [variant]
    while (target := same_as.get(chain[-1])) and target not in chain:
        chain.append(target)
    return chain[1:]
