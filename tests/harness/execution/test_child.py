"""Any callable runs in a child process, which is forked from a server with modules imported."""

import logging
import os
import subprocess
import sys
import time
from multiprocessing import Pipe
from pathlib import Path

import pytest
from processes import server_children

from harness.execution.child import Output, run, start_job
from harness.execution.server import SERVER, start_server
from harness.execution.worker import LoggedOnce, Note, Report, Stage

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


def test_the_result_and_reports_come_back() -> None:
    """Stages and notes are heard in order, before the result."""
    heard: list[object] = []
    assert run(divide, 7, 2, first=FIRST, listen=heard.append) == 3.5
    assert heard == [Stage("the division", 60.0, "divide"), "dividing"]


def test_a_stage_that_takes_too_long_is_stopped() -> None:
    """The failure has the output until then."""
    failed = run(sleep, first=FIRST)
    assert (failed.cause, failed.subject, failed.output) == ("time", "sleep", "good night")
    assert failed.elapsed_s > 0.3


def keep_the_pipe(_: Report) -> None:
    os.write(1, b"before\n")
    if not os.fork():
        time.sleep(600)
    os._exit(0)


def test_a_process_that_keeps_the_pipe_open_is_not_waited_for(capfd) -> None:
    """The end of a child is seen while a process that it left has its pipes."""
    failed = run(keep_the_pipe, first=FIRST)
    assert failed.reason == "The child process ended with exit code 0 without a result."
    assert "before" in capfd.readouterr().err
    assert server_children() == []


def is_imported(module: str, _: Report) -> bool:
    return module in sys.modules


def has_imported(module: str) -> bool:
    return run(is_imported, module, first=FIRST)


def stay(report: Report) -> None:
    report.send(Note("here"))
    time.sleep(600)


def test_jobs_find_what_the_server_has_imported() -> None:
    """A server without a wanted module is replaced, and one that has all of them is kept."""
    start_server(("wave",))
    assert has_imported("wave")
    assert not has_imported("colorsys")
    start_server(("wave", "colorsys"))
    start_server(("colorsys",))
    assert has_imported("wave")


def test_a_running_job_keeps_its_server() -> None:
    """A server is replaced only when its last job has ended."""
    start_server(("wave",))
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


@pytest.mark.parametrize(
    ("last", "times"),
    [
        ("", 1),
        # In the server, of which the job is a fork; it has a parent of its own.
        ("if 'serve' in sys.orig_argv and worker.in_server == 1: sys.exit('not here')", 3),
        ("if __name__ != '__main__': run(print, first=worker.Stage('a bomb', 60.0))", 3),
    ],
)
def test_the_main_module_is_imported_once_or_by_each_job(
    tmp_path: Path, last: str, times: int
) -> None:
    """Functions of the program are found; a job that the import starts is refused."""
    (tmp_path / "beside_it.py").write_text("NAME = 'from the folder of the script'\n")
    script = tmp_path / "script.py"
    script.write_text(MAIN.replace("LAST_LINE", last))
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    imported = (tmp_path / "imported").read_text().split()
    assert imported == ["__main__", *["__mp_main__"] * times]
    if times == 1:
        assert (done.stdout, done.stderr) == ("from the folder of the script\n" * 2, "")
    else:
        assert "Failed(reason=" in done.stdout


def test_an_import_that_never_ends_is_one_sentence(tmp_path: Path) -> None:
    """The server is killed after its limit, and the next start begins another."""
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
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == (
        "Starting a child process took longer than 1 s; what is imported first is: "
        "endless_module.\n"
    )
    assert SERVER.process is None or SERVER.process.poll() is None


@pytest.fixture
def pipe():
    """The output of a process, and the end of its pipe that the process writes into."""
    reader, writer = Pipe(duplex=False)
    yield Output(reader), writer
    writer.close()


def test_a_flood_is_cut_and_counted(pipe, capsys) -> None:
    """The first 8 KiB are passed on, and the rest is counted."""
    output, writer = pipe
    for _ in range(10):
        os.write(writer.fileno(), b"y" * 40_000)
        output.read()
    output.close()
    err = capsys.readouterr().err
    assert err == "y" * 8192 + "\n(It printed 391,808 more bytes, which are left out.)\n"


def test_the_last_of_it_is_whole_lines(pipe) -> None:
    """The last 2048 characters begin with a whole line; bytes that are no text are escapes."""
    output, writer = pipe
    for number in range(1000):
        os.write(writer.fileno(), b"line %04d\n" % number)
    lines = output.last().splitlines()
    assert lines[-1] == "line 0999"
    assert len(lines) > 150
    assert {len(line) for line in lines} == {9}
    os.write(writer.fileno(), b"\n\xff\x00a\tb\x7f \xe2\x80\xae\n")
    assert output.last().endswith("\n\\xff\\x00a    b\\x7f \\u202e")


def test_messages_of_one_line_of_code_are_written_once_with_a_count():
    """Libraries repeat themselves; messages of the logger `shardbench` differ by their text."""
    lines: list[str] = []
    library, own = logging.Logger("library.part"), logging.Logger("shardbench")
    handler = LoggedOnce(lines.append)
    for logger in (library, own):
        logger.addHandler(handler)
    for table in range(99):
        library.warning("No kernel for table %d.", table)
    for name in ("a", "b", "a"):
        own.warning("%s is slow.", name)
    library.warning("Another line.")
    assert lines == ["No kernel for table 0.", "a is slow.", "b is slow.", "Another line."]
    handler.close()
    counts = lines[4:]
    assert [line.startswith("There were 99 ") for line in counts] == [True, False]
    assert "library.part, line " in counts[0]
    assert counts[1].startswith("There were 2 ")
    handler.close()
    assert len(lines) == 6
