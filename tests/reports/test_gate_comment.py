"""The gate's comment on a pull request, against a fake of GitHub's API."""

import io
import json
import urllib.error
from urllib.parse import parse_qs, urlsplit

import pytest

from reports.gate_comment import main

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
