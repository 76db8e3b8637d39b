"""Post a gate's verdict as a comment on a GitHub pull request, and update it in later runs.

`python -I reports/gate_comment.py VERDICT.md NAME` runs in a job of GitHub Actions, and needs no
installed package. The comment starts with a hidden marker with NAME, by which a later run finds it.
The outcome never fails the job: the verdict does. Settings come from the variables that GitHub
sets, and from GITHUB_TOKEN.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

_LONGEST = 65_536  # characters that GitHub accepts
_REST = "\n\nThe rest is in the summary of the job.\n"
_PER_PAGE = 100
_SECONDS = 30.0


def main(arguments: list[str], environment: Mapping[str, str]) -> str:
    """Post the file's text under the name, and return a line for the job's log."""
    file, name = arguments
    try:
        event = json.loads(Path(environment["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
        if "pull_request" not in event:
            return "No comment: this job does not run for a pull request."
        number = int(event["pull_request"]["number"])
        marker = f"<!-- shardbench gate: {' '.join(name.split())} -->"
        body = f"{marker}\n{Path(file).read_text(encoding='utf-8')}"
        if len(body) > _LONGEST:
            body = body[: _LONGEST - len(_REST)].rpartition("\n")[0] + _REST
        done = _post(environment, number, marker, body)
    except urllib.error.HTTPError as error:
        if error.code not in (401, 403, 404):
            return f"::warning::The comment could not be written: {error!r}"
        return (
            "::notice::No comment, because the token of this job may not write any "
            f"({error.code} {error.reason}), as in pull requests from forks. The verdict is in the "
            "job's summary."
        )
    except Exception as error:  # whatever GitHub answers, a comment never fails the job
        return f"::warning::The comment could not be written: {error!r}"
    return f"The comment was {done}."


def _post(environment: Mapping[str, str], number: int, marker: str, body: str) -> str:
    """Post the comment with this marker, or replace its text; return `posted` or `updated`.

    Only comments of bots, and of the person with this token, are replaced: another person could
    copy the marker, and change the verdict.
    """
    issues = f"repos/{environment['GITHUB_REPOSITORY']}/issues"

    def ask(method: str, path: str, content: Any = None) -> Any:
        headers = {
            "Authorization": f"Bearer {environment['GITHUB_TOKEN']}",
            "Accept": "application/vnd.github+json",
        }
        data = None if content is None else json.dumps(content).encode()
        url = f"{environment['GITHUB_API_URL']}/{path}"
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            return json.loads(answer.read()) if content is None else None

    try:
        person = ask("GET", "user")["login"]
    except urllib.error.HTTPError:  # the token of a job or of an app belongs to no person
        person = None
    for page in count(1):
        comments = ask("GET", f"{issues}/{number}/comments?per_page={_PER_PAGE}&page={page}")
        for comment in comments:
            author = comment["user"] or {"type": "deleted", "login": ""}
            is_own = author["type"] == "Bot" or author["login"] == person
            if is_own and (comment["body"] or "").startswith(marker):
                ask("PATCH", f"{issues}/comments/{comment['id']}", {"body": body})
                return "updated"
        if len(comments) < _PER_PAGE:
            break
    ask("POST", f"{issues}/{number}/comments", {"body": body})
    return "posted"


if __name__ == "__main__":
    sys.stdout.write(f"{main(sys.argv[1:], os.environ)}\n")
