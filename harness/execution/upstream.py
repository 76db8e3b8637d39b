"""Real libraries in folders of their own, each driven in a child process.

Two releases of one library cannot be imported side by side, and a library may need an environment
that this project does not run in. `harness/execution/upstream_child.py` is the other end.
"""

import json
import math
import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from harness.model.errors import ShardbenchError

FOLDER = "SHARDBENCH_UPSTREAMS"

_CHILD = Path(__file__).with_name("upstream_child.py")
_CHECKOUT = Path(__file__).resolve().parents[2]
_LOOK_FOR_CHILD_SECONDS = 0.5
_END_SECONDS = 5.0
_KEPT_LINES = 20
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
            line = self._child.ask(json.dumps(dict(request)), seconds)
        except TimeoutError:
            self.close()
            raise ShardbenchError(f"{self.name} did not answer within {seconds:g} s.") from None
        if line is None:
            how = self._child.end()
            self._child = None
            raise ShardbenchError(f"{self.name} {how}.")
        try:
            found = json.loads(line)
            if "error" in found:
                error, text = found["error"]["type"], found["error"]["text"][:_KEPT_LETTERS]
                raise ShardbenchError(f"{self.name} raised {error}{text and f': {text}'}")
            answer = found["answer"]
            if not isinstance(answer, dict):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            self.close()
            begin = line[:80].decode(errors="replace").strip()
            raise ShardbenchError(f"{self.name} answered no JSON object but '{begin}'.") from None
        return answer

    def close(self) -> None:
        """End the child, also in the middle of an answer."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def __enter__(self) -> "Upstream":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Child:
    """A running child, the two pipes to it, and the last lines that it printed."""

    def __init__(self, folder: Path, driver: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        python = folder / "bin" / "python"
        if python.exists():
            environment.pop("PYTHONPATH", None)  # it is for this interpreter
        else:
            python = Path(sys.executable)
            paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
            environment["PYTHONPATH"] = os.pathsep.join(paths)
        theirs, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        try:
            # -P: a driver's neighbours must not stand before the upstream's own modules.
            self._process = subprocess.Popen(
                [python, "-P", _CHILD, driver, str(theirs), str(answers)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=(theirs, answers),
            )
        except BaseException:
            os.close(self._requests)
            os.close(self._answers)
            raise
        finally:
            os.close(theirs)
            os.close(answers)
        self._printed: deque[str] = deque(maxlen=_KEPT_LINES)
        self._listener = threading.Thread(target=self._listen, args=(self._process.stdout,))
        self._listener.daemon = True
        self._listener.start()
        self._begun = b""

    def _listen(self, printed: IO[bytes]) -> None:
        # In pieces, since a line may never end.
        begun = b""
        with printed:
            while chunk := os.read(printed.fileno(), 1 << 16):
                *lines, begun = (begun + chunk).split(b"\n")
                self._printed.extend(line.decode(errors="replace") for line in lines[-_KEPT_LINES:])
                begun = begun[-_KEPT_LETTERS:]
        self._printed.append(begun.decode(errors="replace"))

    def ask(self, line: str, seconds: float | None) -> bytes | None:
        """Send one line and return one line, or None where the child ended before it was whole.

        Raises:
            TimeoutError: it took longer than so many seconds, and the child is killed.
        """
        until = math.inf if seconds is None else time.monotonic() + seconds
        with suppress(OSError), os.fdopen(self._requests, "wb", closefd=False) as stream:
            stream.write(f"{line}\n".encode())
        pieces = [self._begun]
        while b"\n" not in pieces[-1]:
            # What the child forked may keep the pipe open, so its end is looked for as well.
            gone = self._process.poll() is not None
            if not gone and time.monotonic() > until:
                self._process.kill()
                raise TimeoutError
            wait = 0.0 if gone else _LOOK_FOR_CHILD_SECONDS
            if select.select([self._answers], [], [], wait)[0]:
                piece = os.read(self._answers, 1 << 20)
                if not piece:
                    return None
                pieces.append(piece)
            elif gone:
                return None
        answer, _, self._begun = b"".join(pieces).partition(b"\n")
        return answer

    def end(self) -> str:
        """End the child, and return how it ended, as what follows its name in a sentence."""
        with suppress(OSError):
            os.close(self._requests)
        with suppress(OSError):
            os.close(self._answers)
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._listener.join(_LOOK_FOR_CHILD_SECONDS)
        last = next((line.strip() for line in reversed(self._printed) if line.strip()), "")
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"{how} without an answer{last and f', after printing: {last[:_KEPT_LETTERS]}'}"
