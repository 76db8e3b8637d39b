"""README has no result outside of the blocks that are drawn from the record."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
RESULT = re.compile(
    r"""\d[\d.,]*\s?(?:ms|s|min|h|minutes|seconds|hours)\b  # a time
    | \d[\d.,]*\s?(?:times|\N{MULTIPLICATION SIGN}|x)(?!\w)    # a ratio
    | \bgap\s(?:of|is)\s\d""",
    re.VERBOSE,
)
BLOCK = re.compile(r"<!-- \[\[\[cog.*?<!-- \[\[\[end\]\]\] -->", re.DOTALL)
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)


def results_by_hand(text: str) -> list[str]:
    """Return the times and ratios in a text that stand in no generated block and no code."""
    return [found.group() for found in RESULT.finditer(CODE.sub("", BLOCK.sub("", text)))]


def test_readme_has_no_result_that_is_written_by_hand():
    assert results_by_hand(README.read_text()) == []


@pytest.mark.parametrize(
    "sentence", ["It takes 3.5 s.", "It is 38 times as fast.", "43\u00d7 as fast", "a gap of 3 %"]
)
def test_a_result_in_a_sentence_is_found(sentence):
    assert results_by_hand(sentence)
    block = f"<!-- [[[cog cog.outl() ]]] -->\n{sentence}\n<!-- [[[end]]] -->"
    assert not results_by_hand(block)


@pytest.mark.parametrize(
    "page", [README, *sorted((README.parent / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_no_block_is_empty(page):
    """Cog ignores code that begins in the line of the marker and goes on in the next one."""
    for block in BLOCK.findall(page.read_text()):
        generated = block.partition("]]] -->")[2].rpartition("<!-- [[[end]]] -->")[0]
        assert generated.strip(), block
