"""The matrices of published models in small, which a step of Muon orthogonalises."""

from collections.abc import Callable, Iterator, Mapping

Shape = tuple[int, int]
"""Rows and columns."""


def gpt2_xl(layers: int) -> Iterator[Shape]:
    """Yield the matrices of GPT-2 XL's blocks, all sides divided by 25 (openai-community/gpt2-xl).

    Attention and its projection, then the two of the MLP; 48 layers in all.
    """
    for _ in range(layers):
        yield from ((192, 64), (64, 64), (256, 64), (64, 256))


def deepseek_v2_lite(layers: int) -> Iterator[Shape]:
    """Yield the matrices of DeepSeek-V2-Lite, all sides divided by 64 (its config.json).

    27 layers in all: attention with a compressed key and value, then a dense MLP in the first
    layer, and 64 experts and 2 shared ones in one MLP of twice the width in the others.
    """
    for layer in range(layers):
        yield from ((48, 32), (9, 32), (64, 8), (32, 32))
        experts, width = (1, 171) if layer == 0 else (64, 22)
        for _ in range(experts):
            yield from ((width, 32), (width, 32), (32, width))
        if layer:
            yield from ((44, 32), (44, 32), (32, 44))


MATRICES: Mapping[str, Callable[[int], Iterator[Shape]]] = {
    "gpt2-xl": gpt2_xl,
    "deepseek-v2-lite": deepseek_v2_lite,
}
