"""After a comparison no process is left, and standard output contains only its answer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from comparing import LONG, compare, ends, left_pid
from processes import server_children

from harness.measuring.jobs import Event


def started(*variants: str, stderr: int = subprocess.DEVNULL, **options: str) -> subprocess.Popen:
    """Start a process that compares variants and prints their cells."""
    here = Path(__file__).parent
    path = [str(folder) for folder in (here, here.parents[1], here.parents[3])]
    script = f"import comparing; comparing.print_cells(*{variants}, **{options})"
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
    )


class TestNothingIsLeftBehind:
    @pytest.mark.parametrize("stage", ["checking", "timing"])
    def test_after_an_interruption(self, folder: Path, stage: str):
        def interrupt(event: Event) -> None:
            is_timed = event.stage == "timing" and event.step > 2
            if event.progress is not None or is_timed:
                assert server_children()
                raise KeyboardInterrupt

        variant = "endless" if stage == "checking" else "same"
        with pytest.raises(KeyboardInterrupt):
            compare(variant, folder=folder, listen=interrupt)
        assert server_children() == []
        if stage == "checking":
            assert ends(left_pid(folder))

    def test_by_a_variant_that_died_beside_a_process_of_its_own(self, folder: Path):
        cell = compare("killed-parent", folder=folder)["killed-parent"]
        assert cell.status == "failed"
        assert ends(left_pid(folder, "grandchild"))

    @pytest.mark.parametrize("variant", ["endless", "silent-parent"])
    def test_after_the_parent_was_killed(self, folder: Path, variant: str):
        with started(variant, folder=str(folder)) as parent:
            try:
                left_pid(folder)
                family = psutil.Process(parent.pid).children(recursive=True)
                assert len(family) >= 2
            finally:
                parent.kill()
        assert all(ends(process.pid) for process in family)


class TestStandardOutput:
    def answer(self, variant: str, **options: str) -> tuple[dict[str, list[str]], str]:
        """Return what a comparison wrote to standard output, as JSON, and to standard error."""
        with started(variant, stderr=subprocess.PIPE, **options) as process:
            out, err = process.communicate(timeout=LONG)
        assert process.returncode == 0, err
        return json.loads(out), err

    def test_it_carries_what_was_asked_for_and_nothing_else(self):
        """What a variant, its processes or a preloaded module print goes to standard error."""
        cells, err = self.answer("prints", preload="noisy_module")
        assert cells == {"reference": ["ok", "reference"], "prints": ["ok", "same"]}
        for noise in ("preparing", "running", "below Python", "of a grandchild"):
            assert noise in err

    def test_a_module_that_cannot_be_preloaded_does_not_disturb_it(self):
        """The variants are compared without it."""
        cells, _ = self.answer("same", preload="broken_module")
        assert cells == {"reference": ["ok", "reference"], "same": ["ok", "same"]}
