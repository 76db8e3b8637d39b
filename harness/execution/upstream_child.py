"""The side of a real upstream's child process that answers: one JSON line for each request.

It runs as a script on the upstream's own interpreter, which knows no other module of this project:

    python -P upstream_child.py DRIVER REQUESTS ANSWERS

DRIVER is a module's name or a file that ends in `.py`, and has a mapping `HANDLERS` of the kinds of
request to functions; REQUESTS and ANSWERS are the numbers of open file descriptors.
"""

import importlib
import json
import os
import queue
import runpy
import select
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

Handler = Callable[[dict[str, Any]], dict[str, Any]]

_LOOK_FOR_PARENT_SECONDS = 1.0


def serve(handlers: Mapping[str, Handler], requests: int, answers: int) -> None:
    """Answer requests until no more can come, then end this process, whatever else it does.

    A request is a JSON object whose `kind` names a handler; the handler gets the rest of it. The
    answer is `{"answer": ...}`, or `{"error": {"type": ..., "text": ...}}` with the first line of
    what was raised.

    Args:
        handlers: A function for each kind of request.
        requests: The file descriptor to read from; its end is also what ends this process.
        answers: The file descriptor to write to.
    """
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests, waiting), daemon=True).start()
    with os.fdopen(answers, "w", encoding="utf-8", closefd=False) as stream:
        while True:
            line = _answer(handlers, waiting.get())
            try:
                stream.write(line + "\n")
                stream.flush()
            except OSError:  # nobody wants it any more
                os._exit(0)


def _receive(requests: int, waiting: "queue.SimpleQueue[bytes]") -> None:
    """Pass requests on, also while one is being answered, so that the end is seen at once."""
    parent = os.getppid()
    begun = b""
    while True:
        # What the parent forked may keep the pipe open when the parent itself is gone.
        ready, _, _ = select.select([requests], [], [], _LOOK_FOR_PARENT_SECONDS)
        chunk = os.read(requests, 1 << 20) if ready else b""
        if (ready and not chunk) or os.getppid() != parent:
            os._exit(0)
        *lines, begun = (begun + chunk).split(b"\n") if chunk else [begun]
        for line in lines:
            waiting.put(line)


def _answer(handlers: Mapping[str, Handler], line: bytes) -> str:
    try:
        request = json.loads(line)
        answer = handlers[request.pop("kind")](request)
        return json.dumps({"answer": answer})
    except (Exception, SystemExit) as error:  # it may raise anything; the next one may do
        return _failure(error)


def _failure(error: BaseException) -> str:
    first_line = next(iter(str(error).strip().splitlines()), "")
    return json.dumps({"error": {"type": type(error).__name__, "text": first_line}})


def _handlers(driver: str) -> Mapping[str, Handler]:
    if driver.endswith(".py"):
        found: Any = runpy.run_path(driver)["HANDLERS"]
    else:
        found = importlib.import_module(driver).HANDLERS
    handlers: Mapping[str, Handler] = found
    return handlers


def _explaining(error: BaseException) -> Mapping[str, Handler]:
    def explain(_: dict[str, Any]) -> dict[str, Any]:
        raise error

    return defaultdict(lambda: explain)


def main() -> None:
    """Load the driver and serve; a driver that cannot be loaded answers every request with why."""
    driver, requests, answers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for descriptor in (requests, answers):  # what the upstream starts must not hold them open
        os.set_inheritable(descriptor, False)
    os.dup2(2, 1)  # what is printed goes where errors go, and never between the answers
    try:
        handlers = _handlers(driver)
    except (Exception, SystemExit) as error:
        handlers = _explaining(error)
    serve(handlers, requests, answers)


if __name__ == "__main__":
    main()
