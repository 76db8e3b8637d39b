"""Real libraries in folders of their own, each driven in a child process.

Two releases of one library cannot be imported side by side, and a library may need an environment
that this project does not run in. `upstream_child.py` is the other end.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Self

from harness.errors import ShardbenchError
from harness.execution.child import how_it_ended
from harness.execution.lines import Lines, write_line
from harness.execution.output import Output

FOLDER = "SHARDBENCH_UPSTREAMS"

_CHILD = Path(__file__).with_name("upstream_child.py")
_CHECKOUT = Path(__file__).resolve().parents[2]
_END_SECONDS = 5.0
_KEPT_LETTERS = 200


def folder(name: str) -> Path:
    """Return where an upstream is or would be installed: by SHARDBENCH_UPSTREAMS or the checkout.

    Args:
        name: The upstream with its release, e.g. `colossalai-0.4.1`.
    """
    return Path(os.environ.get(FOLDER) or _CHECKOUT / "upstreams").absolute() / name


def is_ready(name: str) -> bool:
    """Return whether an upstream is installed; its folder gets its name when it is complete."""
    return folder(name).is_dir()


class Upstream:
    """A real library, asked in a child process of its own.

    The child starts with the first question, stays for the next ones, and ends with `close`, with
    this process, or when it fails to answer; the question after that starts another one. One thread
    at a time may ask.

    Where the upstream's folder has a `bin/python`, that runs the child; otherwise this interpreter
    does, with the folder first among its import paths.

    Args:
        name: The upstream with its release, which is also its folder's name.
        driver: What answers in the child: a file that ends in `.py`, or the name of a module that
            the child can import. Its `HANDLERS` maps each kind of request to a function from a
            request to an answer.
        at: The folder that the upstream is in, where that is not `folder(name)`.
    """

    def __init__(self, name: str, driver: str | Path, at: Path | None = None) -> None:
        self.name = name
        self._folder = at
        self._driver = str(driver)
        self._child: _Child | None = None

    def ask(self, request: Mapping[str, Any], seconds: float | None = None) -> dict[str, Any]:
        """Return the upstream's answer to one request.

        Args:
            request: `kind` names one of the driver's handlers, which is given the rest; all of it
                as JSON can hold it. Floats arrive bit for bit, both ways.
            seconds: How long the answer may take before the child is ended; None for ever.

        Raises:
            ShardbenchError: the upstream is not installed, raised, ended without an answer, took
                too long, or answered something else than one JSON object.
        """
        if self._child is None:
            found = self._folder or folder(self.name)
            if not found.is_dir():
                raise ShardbenchError(f"{self.name} is not installed in {found}.")
            self._child = _Child(found, self._driver)
        try:
            line = self._child.ask(
                json.dumps(dict(request)), math.inf if seconds is None else seconds
            )
        except EOFError:
            how = self._child.end(_END_SECONDS)
            self._child = None
            raise ShardbenchError(f"{self.name} {how}.") from None
        if line is None:
            self.close()
            raise ShardbenchError(f"{self.name} did not answer within {seconds:g} s.")
        try:
            match json.loads(line):
                case {"answer": dict(answer)}:
                    return answer
                case {"error": {"type": str(error), "text": str(text)}}:
                    text = text and f": {text[:_KEPT_LETTERS]}"
                    raise ShardbenchError(f"{self.name} raised {error}{text}")
        except ValueError:
            pass
        self.close()
        begin = line[:80].decode(errors="replace").strip()
        raise ShardbenchError(f"{self.name} answered no JSON object but '{begin}'.")

    def close(self) -> None:
        """End the child, also in the middle of an answer."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Child:
    """A running child and the pipes to it."""

    def __init__(self, folder: Path, driver: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        python = folder / "bin" / "python"
        if python.exists():
            environment.pop("PYTHONPATH", None)  # it is for this interpreter
        else:
            python = Path(sys.executable)
            paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
            environment["PYTHONPATH"] = os.pathsep.join(paths)
        theirs, self._requests = Pipe(duplex=False)
        self._answers, answers = Pipe(duplex=False)
        pipes = (theirs.fileno(), answers.fileno())
        try:
            # -P: a driver's neighbours must not stand before the upstream's own modules.
            self._process = subprocess.Popen(
                [python, "-P", _CHILD, driver, *map(str, pipes)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=pipes,
            )
        finally:
            theirs.close()
            answers.close()
        assert self._process.stdout is not None
        self._output = Output(self._process.stdout, passed_on=False)
        self._lines = Lines(self._answers, self._output, lambda: self._process.poll() is not None)

    def ask(self, line: str, seconds: float) -> bytes | None:
        """Send one line and return one line, or None after so many seconds.

        Raises:
            EOFError: the child ended before its line was whole.
        """
        try:
            write_line(self._requests, f"{line}\n".encode())
        except OSError:
            raise EOFError from None
        return self._lines.next(seconds)

    def end(self, seconds: float = 0.0) -> str:
        """End the child unless it ends within so many seconds; returns how, to follow its name."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        last = self._output.last().split("\n")[-1][:_KEPT_LETTERS]
        self._output.close()
        self._requests.close()
        self._answers.close()
        return f"{how_it_ended(code)} without an answer{last and f', after printing: {last}'}"
