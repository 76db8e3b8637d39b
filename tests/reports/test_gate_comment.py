"""The gate's comment on a pull request, against a fake of GitHub's API on the loopback."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from reports.gate import comment as module
from reports.gate.comment import main

REPOSITORY, NUMBER = "some/planners", 7


class FakeGitHub(ThreadingHTTPServer):
    """Keeps comments; `answers` are status codes for the next requests, 200 after them.

    The token belongs to a job, or to the person `person`. `says` replaces the text of an answer
    with comments, and `cut` announces more bytes than it sends.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.comments, self.answers, self.asked = [], [], []
        self.person = self.says = None
        self.refusal, self.cut = {}, False

    def add(self, body, kind="Bot", login="github-actions[bot]"):
        user = {"type": kind, "login": login}
        self.comments.append({"id": len(self.comments) + 1, "body": body, "user": user})
        return self.comments[-1]

    def post(self, body):
        return self.add(body, "User", self.person) if self.person else self.add(body)

    @property
    def bodies(self):
        return [comment["body"] for comment in self.comments]


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self):
        server = self.server
        length = int(self.headers.get("Content-Length") or 0)
        content = json.loads(self.rfile.read(length)) if length else {}
        server.asked.append((self.command, self.headers["Authorization"]))
        code = server.answers.pop(0) if server.answers else 200
        url = urlsplit(self.path)
        if url.path == "/user" and not server.person:
            code = 403
        found = server.refusal
        if code == 200 and url.path == "/user":
            found = {"login": server.person}
        elif code == 200:
            parts = url.path.removeprefix(f"/repos/{REPOSITORY}/issues/").split("/")
            if self.command == "GET":
                query = {name: int(value) for name, (value,) in parse_qs(url.query).items()}
                start = (query["page"] - 1) * query["per_page"]
                found = server.comments[start : start + query["per_page"]]
            elif self.command == "PATCH":
                found = server.comments[int(parts[1]) - 1]
                found["body"] = content["body"]
            else:
                assert parts == [str(NUMBER), "comments"]
                found = server.post(content["body"])
        text = json.dumps(found) if server.says is None else server.says
        self.send_response(code)
        if server.cut:
            self.send_header("Content-Length", str(len(text) + 1000))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = do_PATCH = answer  # noqa: N815 - names that http.server calls


@pytest.fixture
def github(monkeypatch):
    monkeypatch.setattr(module, "_WAIT_SECONDS", 0.0)
    with FakeGitHub() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield server
        server.shutdown()


@pytest.fixture
def post(github, tmp_path):
    def run(text, name="expectations.toml", event=None):
        verdict, file = tmp_path / "verdict.md", tmp_path / "event.json"
        verdict.write_text(text, encoding="utf-8")
        file.write_text(json.dumps(event or {"pull_request": {"number": NUMBER}}))
        environment = {
            "GITHUB_API_URL": f"http://127.0.0.1:{github.server_port}",
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_EVENT_PATH": str(file),
            "GITHUB_TOKEN": "t0ken",
        }
        return main([str(verdict), name], environment)

    return run


def test_the_first_run_posts_and_later_ones_update(github, post):
    github.add("A question", kind="User")
    post("## As expected: 9 cells ✓")
    post("## Regression: 1 of 9 cells")
    assert len(github.bodies) == 2
    assert github.bodies[1].endswith("## Regression: 1 of 9 cells")
    assert {token for _, token in github.asked} == {"Bearer t0ken"}


def test_each_gate_has_a_comment(github, post):
    post("one", "a.toml")
    post("two", "b.toml")
    post("three", "a.toml")
    assert [body.partition("\n")[2] for body in github.bodies] == ["three", "two"]


def test_comments_of_others_are_left_alone(github, post):
    post("verdict")
    marked = github.bodies[0]
    github.comments.clear()
    quoted = [github.add(marked, kind="User"), github.add(f"> {marked}")]
    before = [comment["body"] for comment in quoted]
    post("another verdict")
    assert github.bodies[:2] == before
    assert len(github.bodies) == 3


def test_a_person_s_token_updates_the_comment_of_that_person_alone(github, post):
    """A person's token has one comment, and leaves a copy by somebody else as it is."""
    github.person = "perf-robot"
    post("one")
    post("two")
    assert [body.partition("\n")[2] for body in github.bodies] == ["two"]
    copied = github.add(github.comments.pop()["body"], "User", "somebody")
    post("three")
    assert [body.partition("\n")[2] for body in github.bodies] == ["two", "three"]
    assert copied["user"]["login"] == "somebody"


def test_jobs_of_a_matrix_have_a_comment_each(github, post):
    """The values of the matrix are part of the name, over lines and with any blanks."""
    for version in ("3.11", "3.12", "3.11"):
        post(version, f'expectations.toml {{\n  "python": "{version}"\n}}')
    post("no matrix", "expectations.toml ")
    post("no matrix", "expectations.toml")
    said = [body.partition("\n")[2] for body in github.bodies]
    assert said == ["3.11", "3.12", "no matrix"]


def test_comments_without_an_author_or_a_text_are_passed_over(github, post):
    """A comment of a deleted account has no author."""
    github.add("a comment")["user"] = None
    github.add(None)
    github.comments.append(None)
    post("one")
    post("two")
    assert len(github.comments) == 4
    assert github.comments[3]["body"].endswith("two")


@pytest.mark.parametrize("says", ["<html>", "", '{"message": "ok"}', "null", '"text"', "7"])
def test_an_answer_that_is_no_list_of_comments_is_a_warning(github, post, says):
    """The job goes on after any answer."""
    github.says = says
    assert post("verdict").startswith("::warning::")


def test_an_answer_that_is_cut_is_a_warning(github, post):
    """The job goes on after an answer that lacks its end."""
    github.cut = True
    assert post("verdict").startswith("::warning::")


def test_a_limit_of_requests_is_not_taken_for_a_token_that_may_not_write(github, post):
    """GitHub answers 403 for both, and a limit is a warning."""
    github.answers = [200, 403]
    github.refusal = {"message": "You have exceeded a secondary rate limit"}
    assert post("verdict").startswith("::warning::")


@pytest.mark.parametrize("event", [{"pull_request": None}, {"pull_request": {}}])
def test_a_strange_event_does_not_fail_the_job(post, event):
    """The job goes on after any event."""
    assert post("verdict", event=event).startswith("::warning::")


def test_the_comment_is_found_on_a_later_page(github, post):
    for number in range(150):
        github.add(f"comment {number}")
    post("old")
    github.add("the last")
    post("new")
    assert len(github.bodies) == 152
    assert github.bodies[150].endswith("new")


@pytest.mark.parametrize("code", [401, 403, 404])
def test_a_token_that_may_not_write_is_a_notice(github, post, code):
    github.answers = [200, code]
    assert post("verdict").startswith("::notice::")
    assert github.bodies == []


def test_a_failing_server_is_asked_once_more(github, post):
    github.answers = [502, 200, 500, 200]
    post("verdict")
    assert len(github.bodies) == 1
    github.answers = [500, 500]
    assert post("verdict").startswith("::warning::")
    github.answers = [422]
    assert post("verdict").startswith("::warning::")


def test_without_a_server_the_job_goes_on(github, post):
    github.shutdown()
    github.server_close()
    assert post("verdict").startswith("::warning::")


def test_without_a_pull_request_nothing_is_asked(github, post):
    post("verdict", event={"ref": "refs/heads/main"})
    assert github.asked == []


def test_long_verdicts_are_cut_at_a_line(github, post):
    post("\n".join(f"row {number}" for number in range(20_000)))
    (body,) = github.bodies
    assert 60_000 < len(body) <= 65_536
    assert all(line.startswith(("row", "<!--", "The rest")) for line in body.splitlines() if line)
