"""The pages as a reader sees them, in headless Chromium."""

import pytest
from browser import needs_chromium
from made_up_results import (
    COMPILED,
    PROBLEM,
    cell,
    family_lines,
    past_lines,
    profile,
    with_ranks,
    write,
)
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from harness.measuring.profile.flame_graph import Frame
from reports.changes import write_comparison
from reports.flames import flame_page
from reports.report.page import write_report

pytestmark = needs_chromium

HOSTILE = ("<script>alert(1)</script>", "</style><img src=x onerror=alert(1)>", "{{ 7*7 }} `a|b`")
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(21, 24, 28)"
CELLS = "boxing-cells-table-1"


def all_lines():
    lines = with_ranks([*family_lines(), *past_lines()])
    return [*lines, *(cell(name, status="failed", reason=name, decision=None) for name in HOSTILE)]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return three pages by name."""
    folder = tmp_path_factory.mktemp("pages")
    now = [line | {"counters": {"copies": 7}} for line in all_lines()[2:]]
    a, b = write(folder / "a.jsonl", all_lines()), write(folder / "b.jsonl", now)
    flames = folder / "flames.html"
    odd = profile({(Frame(name, name),): 1.0 for name in HOSTILE})
    flames.write_text(flame_page([odd, COMPILED], PROBLEM), encoding="utf-8")
    return {
        "report": write_report(a, folder / "report").page,
        "comparison": write_comparison(a, b, folder / "comparison"),
        "flames": flames,
    }


@pytest.fixture(params=["report", "comparison", "flames"])
def page(request, pages, browser):
    browser.be_dark(False)
    browser.open(pages[request.param])
    return browser


@pytest.fixture
def cells(pages, browser):
    """Return the browser at the table of all cells, which is folded."""
    browser.be_dark(False)
    browser.open(pages["report"], at=CELLS)
    return browser


def column_of(browser, column, value="textContent"):
    """Return what cells have as `value`, in a column of the visible rows of the table of cells."""
    return browser.run(
        "return [...document.getElementById(arguments[0]).tBodies[0].rows]"
        f".filter(row => row.offsetParent).map(row => row.cells[arguments[1]].{value})",
        CELLS,
        column,
    )


def test_pages_fit_phones_and_the_dark_and_load_nothing(page):
    """No page is wider than its window, complains, asks a network, or runs a name of results.

    On a laptop no table needs a sideways scroll, either.
    """
    for width in (375, 768, 1280):
        page.resize(width)
        assert page.overflow() <= 0
    page.run("for (const part of document.querySelectorAll('details')) part.open = true")
    assert (
        page.run(
            "return [...document.querySelectorAll('.scroll')]"
            ".filter(box => box.scrollWidth > box.clientWidth).map(box => box.firstElementChild.id)"
        )
        == []
    )
    for is_dark, paper in ((True, DARK), (False, LIGHT)):
        page.be_dark(is_dark)
        assert page.run("return getComputedStyle(document.body).backgroundColor") == paper
        filters = page.run(
            "return [...document.querySelectorAll('.card img')]"
            ".map(image => getComputedStyle(image).filter)"
        )
        assert all(("invert" in each) == is_dark for each in filters)
    assert page.run("return [...document.images].every(image => image.naturalWidth > 0)")
    assert page.run("return document.scripts.length") <= 2
    assert page.complaints() == []
    assert len(page.pdf()) > 10_000


def test_a_heading_sorts_by_value_and_leaves_dashes_last(cells):
    """A click or a key on a heading sorts by value, also where units differ."""
    titles = cells.run(
        "return [...document.querySelectorAll('#' + arguments[0] + ' th')].map(t => t.textContent)",
        CELLS,
    )
    column = titles.index("CPU time")
    button = cells.driver.find_elements(By.CSS_SELECTOR, f"#{CELLS} thead button")[column]

    for press, reverse in ((button.click, False), (lambda: button.send_keys(Keys.ENTER), True)):
        press()
        shown = column_of(cells, column, "dataset.sort")
        values = [float(value) for value in shown if value is not None]
        assert len(values) > 20
        assert values == sorted(values, reverse=reverse)
        assert set(shown[len(values) :]) == {None}


def test_a_filter_says_how_many_rows_are_left(cells):
    """Rows that lack one of the words are hidden."""
    box = cells.driver.find_element(By.CSS_SELECTOR, f".filter[data-table={CELLS}]")
    whole = len(column_of(cells, 0))
    box.find_element(By.TAG_NAME, "input").send_keys("QUICK boxes=20")
    assert column_of(cells, 0) == ["boxing/quick-copy@crates[boxes=20,seed=1]/toy_rack:4"]
    assert box.text == f"1 of {whole} rows"


def test_without_scripts_all_is_there(pages, browser):
    """Sections unfold, and filters, which do nothing, are not shown."""
    with browser.without_scripts():
        browser.open(pages["report"])
        boxes = browser.driver.find_elements(By.CSS_SELECTOR, ".filter")
        assert not any(box.is_displayed() for box in boxes)
        browser.driver.find_element(By.CSS_SELECTOR, "#boxing-cells summary").click()
        assert browser.shown(CELLS)


def test_a_flame_graph_zooms_searches_and_changes_its_view(pages, browser):
    """A click zooms in, Escape zooms out, and a search says which share of the time it matches."""
    browser.open(pages["flames"])
    count = "return document.querySelectorAll('#graph button').length"
    whole = browser.run(count)
    frame = browser.driver.find_elements(By.CSS_SELECTOR, "#graph button")[1]
    frame.click()
    assert 1 < browser.run(count) < whole
    assert browser.run("return document.querySelectorAll('#graph .caller').length") == 1
    browser.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert browser.run(count) == whole
    browser.driver.find_element(By.ID, "search").send_keys("ALERT")
    assert "of upstream and" in browser.driver.find_element(By.ID, "matched").text
    assert browser.run("return document.querySelectorAll('#graph .hit').length") >= 2
    for tab in browser.driver.find_elements(By.CSS_SELECTOR, "#tabs button"):
        tab.click()
        assert browser.run(count) >= 1
        assert tab.get_attribute("aria-pressed") == "true"
