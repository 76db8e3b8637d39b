"""The documentation site as a reader of its folder sees it, without a server, in Chromium."""

import pytest
from browser import needs_chromium
from documented import ROOT

BUILT = ROOT / "build" / "docs"

pytestmark = [
    pytest.mark.docs,
    needs_chromium,
    pytest.mark.skipif(not BUILT.exists(), reason="needs the site: make docs"),
]


def test_opening_any_page_asks_no_network_and_logs_no_error(browser):
    """The site works from its folder."""
    pages = sorted({*BUILT.rglob("*.html")} - {BUILT / "404.html"})  # only a server shows that one
    complaints = {}
    for page in pages:
        browser.open(page, 390)
        complaints[page.relative_to(BUILT).as_posix()] = browser.complaints()
    assert len(pages) > 20
    assert not any(complaints.values()), complaints


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_its_window_and_figures_keep_a_size_to_read(browser, width):
    """Wide tables and figures scroll in a box of their own."""
    widths = "return [...document.querySelectorAll('img[src$=\".svg\"]')].map(img => img.width)"
    for name in ("index", "torchrec", "placement", "record", "changelog"):
        browser.open(BUILT / f"{name}.html", width)
        assert browser.overflow() <= 0, name
        assert all(figure >= 500 for figure in browser.run(widths)), name


def test_the_tables_of_the_record_need_no_sideways_scroll_on_a_desktop(browser):
    """Ids of problems break, and cells have narrow margins."""
    browser.open(BUILT / "record.html", 1280)
    boxes = "return [...document.querySelectorAll('.md-typeset__scrollwrap')]"
    hidden = f"{boxes}.map(box => box.scrollWidth - box.clientWidth)"
    assert max(browser.run(hidden)) <= 0
