"""Post a gate's verdict as a comment on a GitHub pull request, and update it in later runs.

`python -I reports/gate/comment.py VERDICT.md NAME` runs in a job of GitHub Actions, and needs no
installed package. The comment starts with a hidden marker with NAME, by which a later run finds it.
The outcome never fails the job: the verdict does. Settings come from the variables that GitHub
sets, and from GITHUB_TOKEN.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

_LONGEST = 65_536  # characters that GitHub accepts
_REST = "\n\nThe rest is in the summary of the job.\n"
_PER_PAGE = 100
_MOST_PAGES = 100
_SECONDS = 30.0
_WAIT_SECONDS = 2.0
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)


class RefusedError(Exception):
    """The token may not write comments, as in pull requests from forks."""


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request of a repository, and the token to comment on it."""

    api: str
    repository: str
    number: int
    token: str

    @classmethod
    def of_job(cls, environment: Mapping[str, str]) -> "PullRequest | None":
        """Return the pull request that a job runs for, None if it runs for another event."""
        event = json.loads(Path(environment["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
        if "pull_request" not in event:
            return None
        return cls(
            environment["GITHUB_API_URL"],
            environment["GITHUB_REPOSITORY"],
            int(event["pull_request"]["number"]),
            environment["GITHUB_TOKEN"],
        )

    def post(self, text: str, name: str) -> str:
        """Post the comment called `name`, or replace its text; return `posted` or `updated`.

        Raises RefusedError, or an error of any kind if GitHub fails twice or answers nonsense.
        """
        marker = f"<!-- shardbench gate: {' '.join(name.split())} -->\n"
        body = marker + text
        if len(body) > _LONGEST:
            body = body[: _LONGEST - len(_REST)].rpartition("\n")[0] + _REST
        content = {"body": body}
        issues = f"repos/{self.repository}/issues"
        for comment in self._comments(f"{issues}/{self.number}/comments"):
            is_marked = (comment.get("body") or "").startswith(marker.strip())
            if is_marked and self._is_own(comment.get("user") or {}):
                self._ask("PATCH", f"{issues}/comments/{comment['id']}", content)
                return "updated"
        self._ask("POST", f"{issues}/{self.number}/comments", content)
        return "posted"

    def _comments(self, path: str) -> Iterator[dict[str, Any]]:
        for page in range(1, _MOST_PAGES + 1):
            comments = self._ask("GET", f"{path}?per_page={_PER_PAGE}&page={page}")
            if not isinstance(comments, list):
                raise ValueError("GitHub's answer is no list of comments")
            yield from filter(None, comments)
            if len(comments) < _PER_PAGE:
                return

    def _is_own(self, author: Mapping[str, Any]) -> bool:
        """Return whether a job, or the person with this token, wrote a comment; others may copy."""
        if author.get("type") == "Bot":
            return True
        try:
            person = self._ask("GET", "user")
        except (RefusedError, OSError):  # the token of a job or of an app belongs to no person
            return False
        login = person.get("login") if isinstance(person, dict) else None
        return login in (None, author.get("login"))

    def _ask(self, method: str, path: str, content: Mapping[str, str] | None = None) -> Any:
        """Return the answer to a GET request; a comment that was written has no other answer."""
        request = urllib.request.Request(
            f"{self.api}/{path}",
            None if content is None else json.dumps(content).encode(),
            {"Authorization": f"Bearer {self.token}", "Accept": "application/vnd.github+json"},
            method=method,
        )
        for attempt in (1, 2):
            try:
                with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                    return json.loads(answer.read()) if content is None else None
            except urllib.error.HTTPError as error:
                # GitHub refuses requests beyond a limit with the same codes.
                if error.code in _REFUSED and b"rate limit" not in error.read():
                    raise RefusedError(f"{error.code} {error.reason}") from None
                if attempt == 2 or error.code < HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise
            time.sleep(_WAIT_SECONDS)
        raise AssertionError("the second attempt returns or raises")


def main(arguments: list[str], environment: Mapping[str, str]) -> str:
    """Post the file's text under the name, and return a line for the job's log."""
    file, name = arguments
    try:
        request = PullRequest.of_job(environment)
        if request is None:
            return "No comment: this job does not run for a pull request."
        done = request.post(Path(file).read_text(encoding="utf-8"), name)
    except RefusedError as error:
        return (
            "::notice::No comment, because the token of this job may not write any "
            f"({error}), as in pull requests from forks. The verdict is in the job's summary."
        )
    except Exception as error:  # whatever GitHub answers, a comment never fails the job
        return f"::warning::The comment could not be written: {error!r}"
    return f"The comment was {done}."


if __name__ == "__main__":
    sys.stdout.write(f"{main(sys.argv[1:], os.environ)}\n")
