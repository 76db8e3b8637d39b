"""The page of a profile: its sentences, its data, and that no name in it can load anything."""

import json
import re
from dataclasses import replace
from html import unescape

import pytest
from made_up_profiles import COMPILED, COPY, PLAN, PROBLEM, UPSTREAM, profile
from page_parser import Page

from harness.measuring.profile.flame_graph import Frame, Profile
from reports.profile.page import explanation, flame_page, overview

ODD = ("</script>", "<!--", "<b>&amp;", "a|b`c`", "line\nbreak", "naïve 計画", "'\"\\")


def data_of(page: Page) -> dict:
    return json.loads(page.scripts[0])


def test_the_sentences_say_which_frames_explain_the_difference():
    assert explanation([UPSTREAM, COMPILED]) == [
        "`copy.deepcopy` itself took 2.1 s of 3.05 s per call in upstream and none in compiled: "
        "115 % of the difference.",
        "`planner.Planner.plan` itself took 900 ms of 3.05 s per call in upstream and 1.17 s of "
        "1.22 s in compiled: 270 ms the other way. With all that it calls it took 3 s and 1.17 s, "
        "100 %.",
        "Together that is 100 % of the difference.",
    ]


def test_at_most_five_frames_are_told_and_none_within_the_noise():
    stacks = {(Frame("m", f"f{n}"),): 1.0 + n for n in range(9)}
    sentences = explanation([profile(stacks), profile({}, "nothing")])
    assert [name for each in sentences for name in re.findall(r"`m\.(f\d)`", each)] == [
        "f8", "f7", "f6", "f5", "f4"
    ]  # fmt: skip
    twin = replace(UPSTREAM, variant="twin")
    assert explanation([UPSTREAM, twin]) == [
        "No frame stands out from the noise between upstream and twin."
    ]


def test_where_the_calls_do_not_differ_there_is_no_share_of_a_difference():
    sentences = explanation([profile({(PLAN,): 1.0}), profile({(COPY,): 1.0}, "compiled")])
    assert sentences == [
        "`planner.Planner.plan` itself took 1 s of 1 s per call in upstream and none in compiled: "
        "1 s more.",
        "`copy.deepcopy` itself took none per call in upstream and 1 s of 1 s in compiled: "
        "1 s less.",
        "The calls as a whole differ by less than the noise.",
    ]


def test_of_one_variant_the_sentences_say_where_its_time_goes():
    assert explanation([UPSTREAM]) == [
        "`copy.deepcopy` itself took 2.1 s of 3.05 s per call: 69 %.",
        "`planner.Planner.plan` itself took 900 ms of 3.05 s per call: 30 %. With all that it "
        "calls it took 3 s, 98 %.",
        "`toy/upstream` itself took 50 ms of 3.05 s per call: 2 %. With all that it calls it took "
        "3.05 s, 100 %.",
    ]


def test_what_profiling_cost_is_said():
    slowed = profile({(): 1.8}, calls=1)
    elsewhere = profile({(): 2.0}, "real", unseen=1.0)
    unknown = profile({(): 2.0}, "quick", unprofiled_s=0.0)
    assert overview([slowed, elsewhere, unknown]) == [
        "upstream: 1 call profiled, 1.8 s per call with the profiler and 1 s without: "
        "profiling made a call 1.8 times as long.",
        "real: 4 calls profiled, 2 s per call. 100 % of its CPU time is in other threads or "
        "processes; its profile shows the calling thread waiting for them.",
        "quick: 4 calls profiled, 2 s per call.",
    ]


def test_variants_that_profiling_slows_differently_are_noted():
    """A page warns of distorted shares if the profiler slows one variant more than the other."""
    slowed, alike = profile({(): 2.6}), profile({(): 2.5}, "alike")
    less = profile({(): 1.6}, "less")
    assert [len(overview([slowed, other])) for other in (alike, less)] == [2, 3]


def test_frames_are_not_compared_where_other_threads_do_the_work():
    """A variant whose work is in other threads gets no sentence that a function took no time."""
    threads = profile({(PLAN,): 1.0}, "threads", unseen=0.9)
    (sentence,) = explanation([threads, COMPILED])
    assert "threads" in sentence
    assert "none" not in sentence


@pytest.mark.parametrize("profiles", [[UPSTREAM], [UPSTREAM, COMPILED]])
def test_the_page_says_it_all_in_words(profiles: list[Profile]):
    page = flame_page(profiles, PROBLEM).replace("&nbsp;", " ")
    text = unescape(re.sub(r"</?code>", "`", page))
    assert PROBLEM in text
    for sentence in (*overview(profiles), *explanation(profiles)):
        assert sentence in text
    assert f"shardbench compare 'toy/upstream@{PROBLEM}'" in text


def test_the_data_hold_the_merged_tree():
    data = data_of(Page(flame_page([UPSTREAM, COMPILED], PROBLEM)))
    assert data["variants"] == ["upstream", "compiled"]
    assert data["frames"] == [
        ["", "toy/upstream against compiled"],
        ["planner", "planner.Planner.plan"],
        ["copy", "copy.deepcopy"],
    ]
    assert data["nodes"] == [
        [0, 0, 0.05, 0.05, 3.05, 1.22, 3.32, 1],
        [1, 0, 0.9, 1.17, 3.0, 1.17, 3.27, 1],
        [2, 1, 2.1, 0.0, 2.1, 0.0, 2.1, 1],
    ]


@pytest.mark.parametrize("name", ODD)
def test_no_name_can_break_out_of_the_page(name: str):
    odd = profile({(Frame(name, name),): 3.0}, variant=name, family=name)
    plain = Page(flame_page([UPSTREAM, COMPILED], PROBLEM))
    page = Page(flame_page([odd, COMPILED], f"{name}/dgx_h100:8"))
    assert len(page.scripts) == 2
    assert not set("<>&") & set(page.scripts[0]), "what browsers may take for markup"
    assert {tag for tag, _ in page.tags} == {tag for tag, _ in plain.tags}
    assert data_of(page)["frames"][1] == [name, f"{name}.{name}"]
    assert data_of(page)["variants"] == [name, "compiled"]


def test_the_page_needs_no_network():
    text = flame_page([UPSTREAM, COMPILED], PROBLEM)
    page = Page(text)
    assert not re.search(r"https?:|//\w+\.\w|@import|url\(", text)
    assert not [1 for _, attributes in page.tags if {"src", "href"} & attributes.keys()]
    (policy,) = (a["content"] for _, a in page.tags if "http-equiv" in a)
    assert policy is not None
    assert "default-src 'none'" in policy


def test_nothing_sampled_makes_a_page_all_the_same():
    page = Page(flame_page([profile({}), profile({}, "compiled")], PROBLEM))
    assert len(data_of(page)["nodes"]) == 1


def test_seconds_are_never_nan():
    data = data_of(Page(flame_page([profile({(PLAN,): 1e-9}), profile({}, "compiled")], PROBLEM)))
    assert all(value == value for node in data["nodes"] for value in node)
