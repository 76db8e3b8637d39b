"""The verdict as Markdown, where texts of files are never markup, and as a comment on GitHub."""

import io
import json
import re
import shlex
import urllib.error
from urllib.parse import parse_qs, urlsplit

import pytest
from made_up_cells import PROBLEM, cell_of, line

from harness.gate.expectations import Expectation, Expectations, MadeWith
from harness.gate.judging import Deviation, GateVerdict, Judged, judge_cells
from harness.model.ids import CellId, ProblemId, WorkloadSpec
from reports.core.formatting import code
from reports.gate import failure_markdown, look_closer, markdown, notes
from reports.gate_comment import main


def judged(*kinds: str | None) -> GateVerdict:
    """Return a verdict with a cell for each kind of deviation; None is a cell as expected."""
    return GateVerdict(
        tuple(
            Judged(
                CellId.parse(f"boxing/v{place}@{PROBLEM}"),
                None,
                cell_of(line(f"v{place}")),
                (Deviation("counters.copies", kind, 1, 2),) if kind else (),
            )
            for place, kind in enumerate(kinds)
        ),
        {},
    )


def test_only_what_deviates_is_above_the_fold():
    """Cells as expected are folded below those that deviate; of thousands of rows 500 are shown."""
    text = markdown(judged(None, "regression"), ["a note"], [("To accept:", ["mv new old"])])
    before, _, folded = text.partition("<details>")
    assert before.startswith("## Regression: 1 of 2 cells is worse than expected\n")
    assert f"| `boxing/v1@{PROBLEM}` | `copies` | `1` | `2` | `worse, up 2 times` |" in before
    assert "\n`a note`\n" in before
    assert "\nTo accept:\n- `mv new old`\n" in before
    assert ("v0" in before, "v0" in folded, "v1" in folded) == (False, True, False)
    assert "<details>" not in markdown(judged(None, None), [], [])
    many = markdown(judged(*["new"] * 2000), [], [])
    assert many.count("\n| `boxing") == 500
    assert "1,500 more differences are left out." in many


def test_versions_and_changed_files_are_notes():
    """Other versions and files that have changed may explain deviations."""
    made_with = MadeWith("3.11.7", {"widgets": "1.1", "gone": "2"})
    cell = cell_of(line())
    expectations = Expectations({cell.id: Expectation()}, made_with=made_with)
    told = notes(judge_cells(expectations, {cell.id: cell}), [("old", "new")])
    assert "gone 2 → not there, widgets 1.1 → 1.2." in told[0]
    assert told[1] == "old is new now: the file that it is given by has changed."


HOSTILE = [
    *("a|b", "``` ` ``", "`", "<script>alert(1)</script>", "<!-- -->", "a\nb | c\n| d", " "),
    *("[x](javascript:alert(1))", "**bold** _it_ #1 @someone", "\x1b[31m\x00", "\u202eabc"),
    *("a\\|b\\", "&lt;"),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_comes_from_a_file_stays_text_in_its_field(text):
    """A text of results is code, whose fence it cannot close, in one field of one row."""
    cell = cell_of(line(fingerprint=text, verdict_reason=text, against=text))
    deviations = (
        Deviation(f"counters.{text}", "new", None, 3),
        Deviation("fingerprint", "changed", text, "x", text),
        Deviation("ratio", "inconclusive", (1, 2), None, text),
    )
    cell_id = CellId("a", text, ProblemId(WorkloadSpec(text), "t", 4))
    verdict = GateVerdict((Judged(cell_id, None, cell, deviations),), {})
    written = markdown(verdict, [text], [("To look:", look_closer(verdict.judged[0]))])
    table = [each for each in written.splitlines() if each.startswith("|")]
    assert len(table) == 2 + len(deviations)
    for each in table:
        assert len(re.findall(r"(?<!\\)\|", each)) == 6, each
    outside = re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", written + failure_markdown(text))
    assert not set("<[*_@`\x1b\x00\u202e") & set(outside), outside
    fence = re.match("`+", code(text))[0]
    assert fence not in re.findall("`+", code(text)[len(fence) : -len(fence)])


def test_the_commands_that_look_closer_can_be_typed():
    """They are quoted for a shell, and ask for the problem as the user gave it."""
    cell = CellId.parse("embedding/it's@tables.csv#1234/mine:4")
    expected = Expectation(given="here/tables.csv/machines.csv#mine:4", against="upstream")
    compare, profile = look_closer(Judged(cell, expected, None, ()))
    where = ["-w", "here/tables.csv", "-t", "machines.csv#mine", "-n", "4"]
    assert shlex.split(compare) == [
        *("shardbench", "compare", "embedding", *where),
        *("--variants", "it's", "--against", "upstream", "--details"),
    ]
    assert shlex.split(profile) == ["shardbench", "profile", "embedding", "it's", *where]


REPOSITORY, NUMBER = "some/planners", 7
JOB, PERSON, OTHER = (
    {"type": kind, "login": login}
    for kind, login in (("Bot", "github-actions[bot]"), ("User", "robot"), ("User", "somebody"))
)


class FakeGitHub:
    """Keeps comments; `answers` are status codes for the next requests, 200 after them.

    `author` is whom the token belongs to. `says` replaces the text of an answer.
    """

    def __init__(self):
        self.comments, self.answers, self.tokens = [], [], set()
        self.author, self.says = JOB, None

    def add(self, body, user):
        self.comments.append({"id": len(self.comments), "body": body, "user": user})

    @property
    def said(self):
        """The comments' texts without their markers."""
        return [(comment["body"] or "").partition("\n")[2] for comment in self.comments]

    def urlopen(self, request, timeout):
        url = urlsplit(request.full_url)
        self.tokens.add(request.get_header("Authorization"))
        code, answer = 200, {}
        if url.path == "/user":
            code, answer = (403, {}) if self.author is JOB else (200, self.author)
        elif self.answers:
            code = self.answers.pop(0)
        if code != 200:
            raise urllib.error.HTTPError(request.full_url, code, "refused", {}, None)
        if url.path != "/user":
            answer = self.comments_answer(request, url)
        return io.BytesIO((json.dumps(answer) if self.says is None else self.says).encode())

    def comments_answer(self, request, url):
        parts = url.path.removeprefix(f"/repos/{REPOSITORY}/issues/").split("/")
        content = json.loads(request.data or "{}")
        if request.method == "GET":
            query = {name: int(value) for name, (value,) in parse_qs(url.query).items()}
            first = (query["page"] - 1) * query["per_page"]
            return self.comments[first : first + query["per_page"]]
        if request.method == "PATCH":
            self.comments[int(parts[1])]["body"] = content["body"]
        else:
            assert parts == [str(NUMBER), "comments"]
            self.add(content["body"], self.author)
        return {}


@pytest.fixture
def github(monkeypatch):
    fake = FakeGitHub()
    monkeypatch.setattr("urllib.request.urlopen", fake.urlopen)
    return fake


@pytest.fixture
def post(github, tmp_path):
    def run(text, name="expectations.toml", event=None):
        verdict, file = tmp_path / "verdict.md", tmp_path / "event.json"
        verdict.write_text(text, encoding="utf-8")
        file.write_text(json.dumps(event or {"pull_request": {"number": NUMBER}}))
        environment = {
            "GITHUB_API_URL": "https://api.invalid",
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_EVENT_PATH": str(file),
            "GITHUB_TOKEN": "t0ken",
        }
        return main([str(verdict), name], environment)

    return run


@pytest.mark.parametrize("author", [JOB, PERSON], ids=["job", "person"])
def test_later_runs_update_the_comment_of_their_gate_alone(github, post, author):
    """Each file and each job of a matrix has one comment, also behind a page of others."""
    github.author = author
    github.add(None, None)  # by a deleted account
    for number in range(120):
        github.add(f"comment {number}", OTHER)
    post("one", "a.toml")
    post("two", 'a.toml {\n  "python": "3.11"\n}')
    post("three", "a.toml ")
    assert github.said[121:] == ["three", "two"]
    assert github.tokens == {"Bearer t0ken"}


def test_a_copy_of_the_marker_by_somebody_else_is_left_alone(github, post):
    """Otherwise the author of the copy could change a verdict."""
    post("verdict")
    marked = github.comments.pop()["body"]
    github.add(marked, OTHER)
    github.add(f"> {marked}", JOB)
    post("another")
    assert len(github.comments) == 3
    assert github.comments[0]["body"] == marked


@pytest.mark.parametrize(
    ("answers", "says", "event", "outcome"),
    [
        ([200, 401], None, None, "::notice::"),
        ([200, 404], None, None, "::notice::"),
        ([500], None, None, "::warning::"),
        ([], "<html>", None, "::warning::"),
        ([], None, {"ref": "refs/heads/main"}, "No comment"),
    ],
)
def test_whatever_happens_the_job_goes_on(github, post, answers, says, event, outcome):
    """A token that may not write is a notice, everything else a warning."""
    github.answers, github.says = answers, says
    assert post("verdict", event=event).startswith(outcome)
    assert github.comments == []


def test_long_verdicts_are_cut_at_a_line(github, post):
    """GitHub refuses comments of more than 65,536 characters."""
    post("\n".join(f"row {number}" for number in range(20_000)))
    body = github.comments[0]["body"]
    assert 60_000 < len(body) <= 65_536
    assert all(line.startswith(("row", "<!--", "The rest")) for line in body.splitlines() if line)
