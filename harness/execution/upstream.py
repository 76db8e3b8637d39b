"""Run real libraries ("upstreams"), each installed in its own folder, in child processes.

One process cannot import two releases of a library, and a library may need other dependencies than
this project.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from harness.model.errors import ShardbenchError

if TYPE_CHECKING:
    from harness.execution.child import Child, OwnProcess

FOLDER = "SHARDBENCH_UPSTREAMS"

_CHECKOUT = Path(__file__).resolve().parents[2]


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

    The first request starts the child; after a child has ended, the next request starts another.
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
        self.name, self._driver, self._folder = name, str(driver), at or folder(name)
        self._child: Child | None = None

    def ask(self, request: Mapping[str, Any]) -> Any:
        """Send one request to the child, and return the upstream's answer.

        Both have JSON types. `kind` names one of the driver's handlers, which gets the other
        fields. Floats arrive unchanged, in both directions.

        Raises:
            ShardbenchError: the upstream is not installed, raised an error, or ended.
        """
        # Imported here, because families that name upstreams are listed without running them.
        from harness.execution import worker
        from harness.execution.child import Child

        child = self._child = self._child or Child(self._start, passed_on=False)
        child.send(json.dumps(dict(request)).encode())
        message = child.receive()
        if isinstance(message, worker.Result):
            return json.loads(message.value)
        reason = message.reason if isinstance(message, worker.Failed) else "It sent no answer."
        if child.has_failed:
            last = child.last_output().split("\n")[-1]
            reason = reason.rstrip(".") + (f", after printing: {last}" if last else "")
            self.close()
        raise ShardbenchError(f"{self.name} failed: {reason.rstrip('.')}.")

    def close(self) -> None:
        """Kill the child, even in the middle of an answer."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, requests: int, messages: int, output: int) -> "OwnProcess":
        import subprocess

        import psutil

        from harness.execution import worker
        from harness.execution.child import OwnProcess

        if not self._folder.is_dir():
            raise ShardbenchError(f"{self.name} is not installed in {self._folder}.")
        variables = {**os.environ, "OMP_NUM_THREADS": "1"}
        python = self._folder / "bin" / "python"
        if python.exists():
            variables.pop("PYTHONPATH", None)  # those modules are for this interpreter
        else:
            python = Path(sys.executable)
            paths = [str(self._folder), *filter(None, [os.environ.get("PYTHONPATH")])]
            variables["PYTHONPATH"] = os.pathsep.join(paths)
        # -P: files next to the program must not shadow the upstream's modules.
        program = [str(python), "-P", worker.__file__, "answer", self._driver]
        process = psutil.Popen(
            [*program, str(requests), str(messages)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=variables,
            pass_fds=(requests, messages),
        )
        return OwnProcess(process)
