"""Run git on a repository that is named, not on that of the user's environment."""

import os
import subprocess

from harness.model.errors import ShardbenchError

# The user's settings and the way to reach remotes. Others, such as GIT_DIR, which git sets for the
# programs of a hook, would make git read another repository, other objects or other paths.
_KEPT = ("GIT_CONFIG", "GIT_SSH", "GIT_SSL", "GIT_ASKPASS", "GIT_EXEC_PATH", "GIT_TERMINAL_PROMPT")


class GitError(ShardbenchError):
    """An error of git, with its reason."""


def git_environment() -> dict[str, str]:
    """Return the environment variables for git, without those that name a repository."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(_KEPT)
    }


def run_git(folder: object, *arguments: str) -> bytes:
    """Return what a git command prints in a folder.

    Raise GitError if it fails, or ShardbenchError if there is no git.
    """
    environment = git_environment() | {"LC_ALL": "C"}  # errors in English
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError)
        why = "is not on the PATH" if is_missing else f"cannot be started: {error.strerror}"
        raise ShardbenchError(f"Reading commits needs git, which {why}.") from None
    if done.returncode:
        command = next(word for word in arguments if not word.startswith("-"))
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        fatal = [line for line in lines if line.startswith("fatal: ")]
        why = [*lines, *fatal][-1].removeprefix("fatal: ").rstrip(".") if lines else "no reason"
        # Git's own remedy, such as for a folder of another owner, is an indented command.
        remedies = [line.strip() for line in lines if line.startswith("\tgit ")]
        why += "".join(f"; '{remedy}' is its remedy" for remedy in remedies)
        raise GitError(f"git {command} in {folder} failed: {why}.")
    return done.stdout
