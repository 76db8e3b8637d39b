"""The first screen of a report, and the pages behind it, in headless Chromium."""

from dataclasses import replace

import pytest
from browser import chromium, needs_chromium
from made_up_ranks import with_ranks
from made_up_results import BOXES, family_lines, no_png, past_lines, statement, write
from selenium.webdriver.common.by import By

from reports.report.page import write_report

pytestmark = needs_chromium

WIDTHS = (360, 800, 1280, 1920)


def _row(system):
    headline = statement("headline", system, "slow-copy", "quick-copy", boxes=40)
    return replace(headline, family=system.lower())


FAMILIES = ("sorting", "boxing", "packing")
FOLDED = "boxing-cells-table-1"


DECLARED = {
    "sorting": (_row("Sorting"),),
    "boxing": tuple(replace(BOXES, name=f"Boxes, way {place}") for place in range(1, 5)),
    "packing": (_row("Packing"),),
}


def lines():
    """Return lines of three families with six systems: four of one family, then one each."""
    lines = with_ranks([*family_lines(), *past_lines()])
    for family in ("packing", "sorting"):
        lines += [
            line | {"family": family, "cell": line["cell"].replace("boxing/", f"{family}/")}
            | {"phases": {}}
            for line in family_lines((40,))
        ]  # fmt: skip
    return lines


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("opening")
    with no_png():
        results = write(folder / "results.jsonl", lines())
        return write_report(results, folder / "report", declared=DECLARED)


@pytest.fixture(scope="module")
def opened():
    with chromium() as browser:
        yield browser


@pytest.fixture
def browser(opened):
    opened.be_dark(False)
    return opened


def pages_shown(browser):
    script = (
        "return [...document.querySelectorAll('main > section')]"
        ".filter(each => each.offsetHeight).map(each => each.id)"
    )
    return browser.run(script)


@pytest.mark.parametrize(("width", "height"), [(390, 844), (800, 800), (1280, 800)])
def test_answers_and_the_figure_come_first(page, browser, width, height):
    browser.open(page)
    browser.resize(width, height)
    place = "return document.querySelector(arguments[0]).getBoundingClientRect().top + scrollY"
    answer, figure, table = (
        browser.run(place, each) for each in (".answer", "figure", "#overview-table")
    )
    assert 0 < answer < figure + 1 < height * 0.8
    assert figure < table
    words = browser.run(
        "return [...document.querySelectorAll('.answer')].map(each => each.textContent).join(' ')"
    ).split()
    assert 40 < len(words) <= 170


def test_no_name_in_the_bar_is_cut_on_a_phone(page, browser):
    browser.open(page)
    browser.resize(360)
    script = (
        "return [...document.querySelectorAll('nav a')]"
        ".every(each => each.getBoundingClientRect().right <= innerWidth)"
    )
    assert browser.run(script)


@pytest.fixture(scope="module", params=["", *FAMILIES, "provenance"])
def at(request, page, opened):
    """The id at which the report is open; the page is opened once and then resized."""
    opened.open(page, at=request.param)
    return request.param


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_its_window(at, browser, width):
    browser.resize(width)
    for dark in (False, True):
        browser.be_dark(dark)
        assert browser.overflow() <= 0


def test_no_open_table_is_cut_at_1280_pixels(at, browser):
    script = (
        "return [...document.querySelectorAll('.scroll')]"
        ".filter(each => each.checkVisibility({contentVisibilityAuto: true}))"
        ".filter(each => each.scrollWidth > each.clientWidth)"
        ".map(each => each.querySelector('table').id)"
    )
    browser.resize(1280)
    if at != "provenance":
        assert browser.run(script) == []


@pytest.mark.parametrize("scripts", [True, False])
def test_each_page_is_shown_alone_and_links_open_theirs(page, browser, scripts):
    def check():
        browser.open(page)
        assert pages_shown(browser) == ["overview"]
        for family in FAMILIES:
            browser.driver.find_element(By.LINK_TEXT, family).click()
            assert pages_shown(browser) == [family]
        browser.driver.find_element(By.LINK_TEXT, "Overview").click()
        assert pages_shown(browser) == ["overview"]
        browser.open(page, at="packing-quality")
        assert pages_shown(browser) == ["packing"]
        assert browser.shown("packing-quality")
        browser.open(page, at=FOLDED)
        assert pages_shown(browser) == ["boxing"]
        if scripts:
            assert browser.shown(FOLDED)
        summary = browser.driver.find_element(By.CSS_SELECTOR, "#boxing-cells summary")
        assert summary.is_displayed()

    if scripts:
        check()
    else:
        with browser.without_scripts():
            check()


def test_navigation_stays_in_sight_and_says_where_one_is(page, browser):
    browser.open(page, at="boxing-quality")
    assert browser.run("return scrollY") > 300
    top = "return document.querySelector('nav').getBoundingClientRect().top"
    assert browser.run(top) == 0
    script = (
        "return [...document.querySelectorAll('nav a')]"
        ".filter(each => getComputedStyle(each).fontWeight > 500).map(each => each.textContent)"
    )
    assert browser.run(script) == ["boxing"]
    browser.open(page)
    assert browser.run(script) == ["Overview"]


def test_families_stand_in_the_order_that_they_declare(page, browser):
    browser.open(page)
    script = "return [...document.querySelectorAll('nav a')].map(each => each.textContent)"
    assert browser.run(script)[1:4] == list(FAMILIES)


def test_in_print_all_pages_follow_one_another(page, browser):
    browser.open(page)
    media = "Emulation.setEmulatedMedia"
    browser.driver.execute_cdp_cmd(media, {"media": "print"})
    try:
        assert {"overview", *FAMILIES} <= set(pages_shown(browser))
    finally:
        browser.driver.execute_cdp_cmd(media, {"media": ""})


def test_marks_tell_what_they_are_and_legends_hide_lines(page, browser):
    browser.open(page, at="boxing-sizes")
    card = browser.driver.find_element(By.CSS_SELECTOR, "#boxing-sizes .card")
    told = browser.run(
        "return [...arguments[0].querySelectorAll('title')].map(each => each.textContent)", card
    )
    assert "slow-copy at 10: 1.00 s" in told
    assert any(each.startswith("exhaustive at 80: ") and "projected" in each for each in told)
    line = card.find_element(By.CSS_SELECTOR, "[data-series='0']")
    entry = card.find_element(By.CSS_SELECTOR, "[data-key='0'][tabindex]")
    assert line.is_displayed()
    browser.run("arguments[0].dispatchEvent(new Event('click'))", entry)
    assert not line.is_displayed()
    assert entry.get_attribute("aria-pressed") == "false"
    assert card.find_element(By.CSS_SELECTOR, "[data-series='1']").is_displayed()
    browser.run("arguments[0].dispatchEvent(new Event('click'))", entry)
    assert line.is_displayed()
