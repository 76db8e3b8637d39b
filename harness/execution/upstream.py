"""Run real libraries ("upstreams"), each installed in its own folder, in child processes.

One process cannot import two releases of a library, and a library may need other dependencies than
this project. `upstream_child.py` is the program of the child process.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Self

from harness.execution.child import how_it_ended
from harness.execution.lines import Lines, write_line
from harness.execution.output import Output
from harness.model.errors import ShardbenchError

FOLDER = "SHARDBENCH_UPSTREAMS"

_CHILD = Path(__file__).with_name("upstream_child.py")
_CHECKOUT = Path(__file__).resolve().parents[2]
_END_SECONDS = 5.0
_KEPT_LETTERS = 200


def folder(name: str) -> Path:
    """Return an upstream's folder, in $SHARDBENCH_UPSTREAMS or the checkout; it may not exist.

    Args:
        name: The upstream with its release, e.g. `colossalai-0.4.1`.
    """
    return Path(os.environ.get(FOLDER) or _CHECKOUT / "upstreams").absolute() / name


def is_ready(name: str) -> bool:
    """Return whether an upstream is installed; installation creates its folder as the last step."""
    return folder(name).is_dir()


class Upstream:
    """A real library in its own child process, which answers requests.

    The first request starts the child. `close`, the end of this process, or a failure to answer
    ends it; the next request then starts a new child. It is not thread-safe.

    If the upstream's folder has a `bin/python`, that interpreter runs the child; otherwise this
    interpreter does, with the folder first on its import path.

    Args:
        name: The upstream with its release, which is also its folder's name.
        driver: The code that answers in the child: a file that ends in `.py`, or the name of a
            module that the child can import. Its `HANDLERS` maps each kind of request to a function
            from a request to an answer.
        at: The folder of the upstream; None means `folder(name)`.
    """

    def __init__(self, name: str, driver: str | Path, at: Path | None = None) -> None:
        self.name = name
        self._folder = at
        self._driver = str(driver)
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: Mapping[str, Any], seconds: float | None = None) -> dict[str, Any]:
        """Send one request to the child, and return the upstream's answer.

        Args:
            request: JSON types. `kind` names one of the driver's handlers, which gets the other
                fields. Floats arrive unchanged, in both directions.
            seconds: The time limit for the answer, after which the child is killed; None for none.

        Raises:
            ShardbenchError: the upstream is not installed, raised an error, ended without an
                answer, took too long, or did not answer with one JSON object.
        """
        process = self._process or self._start()
        try:
            write_line(self._requests, json.dumps(dict(request)).encode() + b"\n")
            line = self._lines.next(math.inf if seconds is None else seconds)
        except (EOFError, OSError):
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
            how = f"{how_it_ended(self._end(process))} without an answer"
            last = self._output.last().split("\n")[-1][:_KEPT_LETTERS]
            raise ShardbenchError(
                f"{self.name} {how}{last and f', after printing: {last}'}."
            ) from None
        if line is None:
            self.close()
            raise ShardbenchError(f"{self.name} did not answer within {seconds:g} s.")
        with suppress(ValueError):
            match json.loads(line):
                case {"answer": dict(answer)}:
                    return answer
                case {"error": {"type": str(error), "text": str(text)}}:
                    text = text and f": {text[:_KEPT_LETTERS]}"
                    raise ShardbenchError(f"{self.name} raised {error}{text}")
        self.close()
        begin = line[:80].decode(errors="replace").strip()
        raise ShardbenchError(f"{self.name} answered no JSON object but '{begin}'.")

    def close(self) -> None:
        """Kill the child, even in the middle of an answer."""
        if self._process is not None:
            self._end(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> subprocess.Popen[bytes]:
        found = self._folder or folder(self.name)
        if not found.is_dir():
            raise ShardbenchError(f"{self.name} is not installed in {found}.")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        python = found / "bin" / "python"
        if python.exists():
            environment.pop("PYTHONPATH", None)  # those modules are for this interpreter
        else:
            python = Path(sys.executable)
            paths = [str(found), *filter(None, [os.environ.get("PYTHONPATH")])]
            environment["PYTHONPATH"] = os.pathsep.join(paths)
        requests, self._requests = Pipe(duplex=False)
        self._answers, answers = Pipe(duplex=False)
        printed, output = Pipe(duplex=False)
        with requests, answers, output:
            # -P: files next to the driver must not shadow the upstream's modules.
            process = subprocess.Popen(
                [python, "-P", _CHILD, self._driver, f"{requests.fileno()}", f"{answers.fileno()}"],
                stdin=subprocess.DEVNULL,
                stdout=output.fileno(),
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=(requests.fileno(), answers.fileno()),
            )
        self._process = process
        self._output = Output(printed, passed_on=False)
        self._lines = Lines(self._answers, self._output, lambda: process.poll() is not None)
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> int:
        """Kill the child, and return its exit code."""
        self._process = None
        process.kill()
        code = process.wait()
        self._output.close()
        self._requests.close()
        self._answers.close()
        return code
