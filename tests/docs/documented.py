"""The commands that README and docs show: in blocks of code and inside sentences."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_PROGRAMS = ("shardbench", "make", "asv", "python", ".venv/bin/python", "pip", "git", "pre-commit")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(`+)((?:.|\n(?!\n))+?)\1")
# What stands for something else: an ellipsis, words in capitals such as FILE or N.
_PLACEHOLDER = re.compile(r"\.\.\.|…|(?<![\w.-])[A-Z][A-Z_]*(?![\w=.-])")


@dataclass(frozen=True, slots=True)
class Command:
    """A command line as words, and the document that shows it."""

    document: str
    text: str

    @property
    def words(self) -> list[str]:
        """The words as a shell splits them, with quotes removed and without redirections."""
        return shlex.split(self.text.partition(" | ")[0].partition(" > ")[0], comments=True)

    @property
    def id(self) -> str:
        """A name for a test."""
        return f"{self.document}: {self.text}"


def documents() -> list[Path]:
    """Return README, the pages of docs, and the other documents."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def commands(paths: Iterable[Path]) -> list[Command]:
    """Return every complete command in the documents once, in their order."""
    found: dict[str, Command] = {}
    for path in paths:
        name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
        for text in _shown(path.read_text(encoding="utf-8")):
            found.setdefault(text, Command(name, text))
    return list(found.values())


def _shown(document: str) -> Iterator[str]:
    for match in _FENCE.finditer(document):
        if match[1] in ("", "sh", "bash", "console"):
            for line in match[2].replace("\\\n", " ").splitlines():
                yield from _command(line.removeprefix("$ "))
    prose = _FENCE.sub("", document)
    for match in _SPAN.finditer(prose):
        yield from _command(match[2].strip())


def _command(line: str) -> Iterator[str]:
    text = " ".join(line.split())
    text = re.sub(r" +# .*", "", text)
    program, _, rest = text.partition(" ")
    # In quotes, capitals are names such as H100 SXM, unless they are what a parameter is.
    unquoted = re.sub(r'"(?![^"]*=[A-Z]+[],])[^"]*"', "", text)
    if program in _PROGRAMS and rest and not _PLACEHOLDER.search(unquoted):
        yield text


def run_python(*words: str, folder: Path) -> str:
    """Run Python in a folder as a reader would run it, and return what it prints."""
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True, text=True, check=False, cwd=folder, timeout=700,
        env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
