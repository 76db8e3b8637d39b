"""Any callable runs in a child process, which is forked from a server with modules imported."""

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import server_children

from harness.execution.child import run, start_job
from harness.execution.logged import LoggedOnce
from harness.execution.server import start_server
from harness.execution.worker import Note, Report, Stage

ROOT = Path(__file__).parents[3]
FIRST = Stage("the beginning", 60.0)


def divide(a: int, b: int, report: Report) -> float:
    report.send(Stage("the division", 60.0, "divide"))
    report.send(Note("dividing"))
    return a / b


def test_the_result_and_reports_come_back():
    """Stages and notes are heard in order, before the result."""
    heard: list[object] = []
    assert run(divide, 7, 2, first=FIRST, listen=heard.append) == 3.5
    assert heard == [Stage("the division", 60.0, "divide"), "dividing"]


def sleep(report: Report) -> None:
    report.send(Stage("sleeping", 0.3, "sleep"))
    print("good night", flush=True)
    time.sleep(600)


def test_a_stage_that_takes_too_long_is_stopped():
    """The failure has the output until then."""
    failed = run(sleep, first=FIRST)
    assert (failed.cause, failed.subject, failed.output) == ("time", "sleep", "good night")
    assert failed.elapsed_s > 0.3


def keep_the_pipe(_: Report) -> None:
    os.write(1, b"before\n")
    if not os.fork():
        time.sleep(600)
    os._exit(0)


def test_a_process_that_keeps_the_pipe_open_is_not_waited_for(capfd):
    """The end of a child is seen while a process that it left has its pipes."""
    failed = run(keep_the_pipe, first=FIRST)
    assert failed.reason == "The child process ended with exit code 0 without a result."
    assert "before" in capfd.readouterr().err
    assert server_children() == []


def is_imported(module: str, _: Report) -> bool:
    return module in sys.modules


def stay(report: Report) -> None:
    report.send(Note("here"))
    time.sleep(600)


def test_a_server_without_a_wanted_module_is_replaced_unless_it_has_jobs():
    """Jobs have the modules of the server that they are forked from."""

    def has_imported(module: str) -> bool:
        return run(is_imported, module, first=FIRST)

    start_server(("wave",))
    assert (has_imported("wave"), has_imported("colorsys")) == (True, False)
    start_server(("wave", "colorsys"))
    start_server(("colorsys",))
    assert has_imported("wave")
    with start_job(stay, memory_gib=8.0) as child:
        assert child.receive(60) == Note("here")
        start_server(("sched",))
        assert not has_imported("sched")
        assert child.receive(0.1) is None
    start_server(("sched",))
    assert has_imported("sched")


MAIN = """
import sys
from pathlib import Path
from harness.execution import worker
from harness.execution.child import run

with (Path(__file__).parent / "imported").open("a") as file:
    file.write(f"{__name__}\\n")
import beside_it

LAST_LINE

def name(report):
    return beside_it.NAME

if __name__ == "__main__":
    for _ in range(2):
        print(run(name, first=worker.Stage("importing", 60.0)))
"""


def run_program(script: Path | str, *path: Path) -> subprocess.CompletedProcess[str]:
    program = [script] if isinstance(script, Path) else ["-c", script]
    return subprocess.run(
        [sys.executable, *program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("last", "times"),
    [
        ("", 1),
        # In the server, of which the job is a fork; it has a parent of its own.
        ("if 'serve' in sys.orig_argv and worker.in_server == 1: sys.exit('not here')", 3),
        ("if __name__ != '__main__': run(print, first=worker.Stage('a bomb', 60.0))", 3),
    ],
)
def test_the_main_module_is_imported_once_or_by_each_job(tmp_path, last, times):
    """Functions of the program are found; a job that the import starts is refused."""
    (tmp_path / "beside_it.py").write_text("NAME = 'from the folder of the script'\n")
    script = tmp_path / "script.py"
    script.write_text(MAIN.replace("LAST_LINE", last))
    done = run_program(script)
    imported = (tmp_path / "imported").read_text().split()
    assert imported == ["__main__", *["__mp_main__"] * times]
    if times == 1:
        assert (done.stdout, done.stderr) == ("from the folder of the script\n" * 2, "")
    else:
        assert "Failed(reason=" in done.stdout


def test_an_import_that_never_ends_is_one_sentence(tmp_path):
    """The server is killed after its limit."""
    (tmp_path / "endless_module.py").write_text("import time\ntime.sleep(600)\n")
    script = """
from harness.execution import child, server, worker
from harness.model.errors import ShardbenchError
server._START_SECONDS = 1.0
server.start_server(("endless_module",))
try:
    child.run(print, first=worker.Stage("printing", 60.0))
except ShardbenchError as error:
    print(error)
"""
    assert run_program(script, tmp_path).stdout == (
        "Starting a child process took longer than 1 s; what is imported first is: "
        "endless_module.\n"
    )


def flood(_: Report) -> None:
    for number in range(5000):
        os.write(1, b"line %04d\n" % number)
    os.write(1, b"\n\xff\x00a\tb\x7f \xe2\x80\xae\n")
    raise ValueError


def test_of_a_flood_the_beginning_is_passed_on_and_the_end_kept_in_whole_lines(capsys):
    """Bytes that are no text are escapes."""
    *lines, _, last = run(flood, first=FIRST).output.splitlines()
    assert (lines[-1], last) == ("line 4999", "\\xff\\x00a    b\\x7f \\u202e")
    assert len(lines) > 150
    assert {len(line) for line in lines} == {9}
    assert len(capsys.readouterr().err.partition("(It printed more")[0].strip()) == 8192


def test_messages_of_one_line_of_code_are_written_once():
    """Libraries repeat themselves; messages of the logger `shardbench` differ by their text."""
    lines: list[str] = []
    library, own = logging.Logger("library.part"), logging.Logger("shardbench")
    for logger in (library, own):
        logger.addHandler(LoggedOnce(lines.append))
    for table in range(99):
        library.warning("No kernel for table %d.", table)
    for name in ("a", "b", "a"):
        own.warning("%s is slow.", name)
    library.warning("Another line.")
    assert lines == ["No kernel for table 0.", "a is slow.", "b is slow.", "Another line."]
