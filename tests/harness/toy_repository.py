"""A git repository to which tests commit versions of the toy library."""

import subprocess
from pathlib import Path
from typing import Any

from toy_library import library_files, write_files

from harness.execution.git import git_environment


class ToyRepository:
    """A git repository to which commits are added, one after another."""

    def __init__(self, folder: Path) -> None:
        """Create the repository, without commits."""
        self.folder = folder
        folder.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        """Run git as a made-up user, without the real user's settings."""
        named = {"NAME": "A Tester", "EMAIL": "tester@example.org", "DATE": "2026-01-02T03:04:05Z"}
        who = {f"GIT_{r}_{k}": v for r in ("AUTHOR", "COMMITTER") for k, v in named.items()}
        nobody = {"HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", "-C", str(self.folder), *arguments],
            env=git_environment() | who | nobody,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def commit(self, title: str, files: dict[str, str]) -> str:
        """Write files and commit them; return the commit's id."""
        write_files(self.folder, files)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", title)
        return self.git("rev-parse", "HEAD")

    def version(self, title: str, scans: int = 1, **changes: Any) -> str:
        """Commit a version of the library."""
        return self.commit(title, library_files(scans=scans, copies=scans, **changes))
