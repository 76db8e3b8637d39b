"""The program of an upstream's child process: answer each request by one JSON line.

It runs as a script on the upstream's interpreter, which can import no other module of this project:

    python -P upstream_child.py DRIVER REQUESTS ANSWERS

DRIVER is a module's name or a file that ends in `.py`; its `HANDLERS` maps each kind of request to
a function. REQUESTS and ANSWERS are the numbers of open file descriptors.
"""

import importlib
import json
import os
import runpy
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

Handler = Callable[[dict[str, Any]], dict[str, Any]]

_LOOK_FOR_PARENT_SECONDS = 1.0


def main() -> None:
    """Answer requests until the pipe of requests is closed, then exit.

    A request is a JSON object; `kind` names a handler, which gets the other fields. The answer is
    `{"answer": ...}`, or `{"error": {"type": ..., "text": ...}}` with the first line of the error.
    If the driver cannot be loaded, the answer to every request is that error.
    """
    driver, requests, answers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for descriptor in (requests, answers):  # the upstream's own children must not keep them open
        os.set_inheritable(descriptor, False)
    os.dup2(2, 1)  # prints go to standard error, never into the answers
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    handlers: Mapping[str, Handler] | BaseException
    try:
        if driver.endswith(".py"):
            handlers = runpy.run_path(driver)["HANDLERS"]
        else:
            handlers = importlib.import_module(driver).HANDLERS
    except (Exception, SystemExit) as error:
        handlers = error
    with os.fdopen(requests, "rb") as lines, os.fdopen(answers, "wb") as stream:
        for line in lines:
            stream.write(_answer(handlers, line).encode() + b"\n")
            stream.flush()
    os._exit(0)  # without waiting for the upstream's threads


def _end_with_parent(parent: int) -> None:
    """Exit when the parent process has ended, even in the middle of an answer."""
    while os.getppid() == parent:
        time.sleep(_LOOK_FOR_PARENT_SECONDS)
    os._exit(0)


def _answer(handlers: Mapping[str, Handler] | BaseException, line: bytes) -> str:
    try:
        if isinstance(handlers, BaseException):
            raise handlers
        request = json.loads(line)
        return json.dumps({"answer": handlers[request.pop("kind")](request)})
    except (Exception, SystemExit) as error:  # a handler may raise anything; later ones may work
        first_line = next(iter(str(error).strip().splitlines()), "")
        return json.dumps({"error": {"type": type(error).__name__, "text": first_line}})


if __name__ == "__main__":
    main()
