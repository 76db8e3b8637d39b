"""Add README and its like to the site, and its font; check that opening a page fetches nothing."""

import re
from importlib.resources import files as resources
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
FONTS = ("Roboto-Regular.ttf", "Roboto-Italic.ttf", "Roboto-Bold.ttf", "LICENSE")

# What a browser fetches by itself when it opens a page; a link that a reader clicks is none of it.
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?![^>]*rel=[\"']?canonical)[^>]*\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|@import\s+(?:url\()?[\"']?((?:https?:)?//[^\"')\s]+)"
    r"|url\([\"']?((?:https?:)?//[^\"')]+)",
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie beside docs/, with links as docs/ sees them, and the font."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
        for name, target in PAGES.items():
            text = text.replace(f"]({name}", f"]({target}")
        files.append(File.generated(config, page, content=text))
    for name in FONTS:
        font = resources("font_roboto") / "files" / name
        files.append(File.generated(config, f"site/fonts/{name}", content=font.read_bytes()))
    return files


def on_page_markdown(_markdown: str, page: Page, config: MkDocsConfig, **_: object) -> None:
    """Keep pages that only lead on to another one out of the search."""
    if config.not_in_nav and config.not_in_nav.match_file(page.file.src_uri):
        page.meta["search"] = {"exclude": True}


def on_page_content(html: str, **_: object) -> str:
    """Let an id that begins a cell of a table break at its punctuation: it has no blanks."""
    ids = re.compile(r"<td><code>[^<]+")
    return ids.sub(lambda cell: re.sub(r"([\[,/@])", r"\1<wbr>", cell[0]), html)


def on_post_build(config: MkDocsConfig) -> None:
    """Check that opening a page asks nothing of a network.

    Raises:
        PluginError: a page or a style sheet names an address that a browser would fetch.
    """
    site = Path(config.site_dir)
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        for match in _FETCHED.finditer(path.read_text(encoding="utf-8")):
            address = next(filter(None, match.groups()))
            raise PluginError(f"{path.relative_to(site)} fetches {address} when it is opened")
