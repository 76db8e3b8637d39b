"""Find the variants that must make the same decision as a variant."""

from collections.abc import Mapping


def models_of(variant: str, same_as: Mapping[str, str | None]) -> list[str]:
    """Return the variants that `variant` must agree with, directly or indirectly, nearest first.

    `same_as` maps a variant to the variant that it reproduces. A cycle lists each variant once.
    """
    chain = [variant]
    while (target := same_as.get(chain[-1])) and target not in chain:
        chain.append(target)
    return chain[1:]
