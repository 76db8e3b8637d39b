"""README, the pages of docs and their site are complete, linked, and have no figure by hand."""

import re
from inspect import ismodule
from pathlib import Path

import click
import pytest
import yaml
from documented import ROOT, documents

import harness.contract
import shardbench
from shardbench.cli import program

README = ROOT / "README.md"
PACKAGES = ("harness", "reports", "shardbench", "benchmarks")
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
# Made of README, CONTRIBUTING and CHANGELOG by docs/site/hooks.py.
GENERATED = {"index.md", "contributing.md", "changelog.md"}
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")
RESULT = re.compile(
    r"""\d[\d.,]*\s?(?:ms|s|min|h|minutes|seconds|hours)\b  # a time
    | \d[\d.,]*\s?(?:times|\N{MULTIPLICATION SIGN}|x)(?!\w)    # a ratio
    | \bgap\s(?:of|is)\s\d""",
    re.VERBOSE,
)
BLOCK = re.compile(r"<!-- \[\[\[cog.*?<!-- \[\[\[end\]\]\] -->", re.DOTALL)
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)


def anchors(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    named = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return named | set(re.findall(r'<a id="([\w-]+)">', text))


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere_and_no_block_is_empty(path):
    """Cog ignores code that begins in the line of the marker and goes on in the next one."""
    text = path.read_text(encoding="utf-8")
    for target, anchor in LINK.findall(text):
        page = path.parent / target if target else path
        assert page.exists(), target
        assert not anchor or anchor in anchors(page), (target, anchor)
    for block in BLOCK.findall(text) if path.name != "CONTRIBUTING.md" else ():  # an example
        generated = block.partition("]]] -->")[2].rpartition("<!-- [[[end]]] -->")[0]
        assert generated.strip(), block


def test_readme_names_every_page_and_has_no_result_that_is_written_by_hand():
    """Results are drawn from the record by blocks."""
    text = README.read_text(encoding="utf-8")
    assert [
        page for page in pages(SITE["nav"]) if "/" not in page and page not in text.lower()
    ] == ["index.md"]
    assert RESULT.findall(CODE.sub("", BLOCK.sub("", text))) == []
    assert RESULT.findall("3.5 s, 38 times as fast, 43\u00d7 as fast, a gap of 3 %")


def test_results_are_drawn_on_one_page_and_in_readme():
    """A drawn table, and the sentence on the machine, stand on the record's page once."""
    pages = [path for path in documents() if BLOCK.search(path.read_text(encoding="utf-8"))]
    assert {path.relative_to(ROOT).as_posix() for path in pages} == {
        "README.md", "CONTRIBUTING.md", "docs/record.md",
    }  # fmt: skip
    blocks = BLOCK.findall((ROOT / "docs" / "record.md").read_text(encoding="utf-8"))
    assert len(blocks) == len(set(blocks))


def test_the_documents_show_every_command():
    """Every command of the program stands in a document."""
    shown = "\n".join(path.read_text(encoding="utf-8") for path in documents())
    for name in program.commands:
        command = program.get_command(click.Context(program), name)
        for words in [f"{name} {inner}" for inner in getattr(command, "commands", ())] or [name]:
            assert f"shardbench {words}" in shown, words


def test_how_it_works_has_a_row_for_each_folder_and_no_other():
    """What only holds folders needs no row; folders are four deep at most."""
    page = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    named = set(re.findall(rf"^\| `((?:{'|'.join(PACKAGES)})[\w/]*)` \|", page, re.MULTILINE))
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    folders = {str(file.parent.relative_to(ROOT)) for file in files}
    assert folders - {"harness", "reports"} == named
    assert [folder for folder in folders if folder.count("/") > 3] == []


def pages(nav: object) -> list[str]:
    """Return the pages of a navigation, in its order."""
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    return [page for each in inner for page in pages(each)]


def test_each_document_is_in_the_navigation_or_leads_to_a_page_that_is():
    """A name that a page had before stays as three lines with a link."""
    written = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    shown = pages(SITE["nav"])
    moved = SITE["not_in_nav"].replace("/", "").split()
    assert sorted(shown + moved) == sorted(written | GENERATED)
    for page in moved:
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert text.count("\n") == 3
        assert {target for target, _ in LINK.findall(text)} <= set(shown)


OF_CONTRACT = [
    name
    for name, value in vars(harness.contract).items()
    if not name.startswith("_") and not ismodule(value)
]


@pytest.mark.parametrize(
    ("page", "module", "names"),
    [("drop-ins", shardbench, shardbench._HOMES), ("contract", harness.contract, OF_CONTRACT)],
    ids=["drop-ins", "contract"],
)
def test_the_reference_has_each_public_name_once(page, module, names):
    """What users and authors of planners import is in the reference."""
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8")
    named = re.findall(rf"^::: {module.__name__}\.(\w+)$", text, re.MULTILINE)
    assert sorted(named) == sorted(names)
