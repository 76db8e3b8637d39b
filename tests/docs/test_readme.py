"""README and docs have working links, and show every command and every drop-in."""

import re
from pathlib import Path

import click
import pytest
from documented import ROOT, documents

from shardbench.cli import program

README = ROOT / "README.md"
_LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)(?:#([^)\s]+))?\)")


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(path: Path):
    for target, anchor in _LINK.findall(path.read_text(encoding="utf-8")):
        found = path.parent / target
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), (target, anchor)


def test_readme_names_every_document():
    text = README.read_text(encoding="utf-8")
    for path in (ROOT / "docs").glob("*.md"):
        assert path.name in text, path.name


def test_the_documents_show_every_command():
    shown = "\n".join(path.read_text(encoding="utf-8") for path in documents())
    for name in program.commands:
        inner = program.get_command(click.Context(program), name)
        for words in [f"{name} {sub}" for sub in getattr(inner, "commands", ())] or [name]:
            assert f"shardbench {words}" in shown, words


def test_readme_says_what_it_is_what_came_out_and_how_to_run_it():
    text = README.read_text(encoding="utf-8")
    parts = ("# shardbench", ".svg", "| ---", "make report", "make test", "from shardbench import")
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert len(text.splitlines()) < 140


def test_readme_shows_each_of_the_three_names_in_five_lines():
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    shown = [re.search(r"from shardbench import (\w+)", block)[1] for block in blocks]
    assert shown == ["Planner", "accelerate", "capture"]
    assert all(len(block.splitlines()) <= 5 for block in blocks)
