"""Any callable runs in a child process, not only variants."""

import multiprocessing
import time
from pathlib import Path

from module_imports import imported_modules, nodes

from harness.execution.bootstrap import Report
from harness.execution.child import run
from harness.execution.messages import Failed, Note, Stage

ROOT = Path(__file__).parents[3]
FIRST = Stage("the beginning", 60.0)


def divide(a: int, b: int, report: Report) -> float:
    report.send(Stage("the division", 60.0, "divide"))
    report.send(Note("dividing"))
    return a / b


def sleep(report: Report) -> None:
    report.send(Stage("sleeping", 0.3, "sleep"))
    print("good night", flush=True)
    time.sleep(600)


def test_its_result_comes_back_and_what_it_reported():
    heard: list[object] = []
    assert run(divide, 7, 2, first=FIRST, listen=heard.append) == 3.5
    assert heard == [Stage("the division", 60.0, "divide"), "dividing"]


def test_an_error_is_a_reason_with_the_stage_that_it_came_in():
    failed = run(divide, 7, 0, first=FIRST)
    assert isinstance(failed, Failed)
    assert (failed.reason, failed.cause) == ("ZeroDivisionError: division by zero", "error")
    assert (failed.stage.what, failed.subject) == ("the division", "divide")


def test_a_stage_that_takes_too_long_is_stopped():
    failed = run(sleep, first=FIRST)
    assert isinstance(failed, Failed)
    assert (failed.cause, failed.subject, failed.output) == ("time", "sleep", "good night")
    assert failed.elapsed_s > 0.3


def start_method(_: Report) -> str:
    return multiprocessing.get_start_method()


def test_processes_of_the_work_start_as_in_any_program():
    """A pool that the work makes starts as it would outside of a child process."""
    assert run(start_method, first=FIRST) == multiprocessing.get_context().get_start_method()


def test_it_knows_no_measuring():
    for path in (ROOT / "harness" / "execution").glob("*.py"):
        for module in imported_modules(nodes(path)):
            if module.startswith("harness."):
                assert module.split(".")[1] in ("execution", "model"), (path, module)
