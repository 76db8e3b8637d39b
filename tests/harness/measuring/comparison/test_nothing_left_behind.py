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

HELPER = Path(__file__).parents[2] / "run_comparison.py"

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(HELPER.parent), str(HELPER.parents[2])]),
}


class TestNothingIsLeftBehind:
    @pytest.mark.parametrize("stage", ["checking", "timing"])
    def test_after_an_interruption(self, folder: Path, stage: str):
        began = 0

        def interrupt(event: Event) -> None:
            nonlocal began
            if event.stage == "timing":
                began += 1
            if (stage == "checking" and event.progress is not None) or began == 3:
                assert server_children()
                raise KeyboardInterrupt

        variant = "endless" if stage == "checking" else "same"
        with pytest.raises(KeyboardInterrupt):
            compare(variant, folder=folder, listen=interrupt)
        assert server_children() == []
        if stage == "checking":
            assert ends(left_pid(folder))

    @pytest.mark.parametrize("variant", ["killed-parent", "raising-parent"])
    def test_by_a_variant_that_failed_beside_a_process_of_its_own(self, folder: Path, variant: str):
        cell = compare(variant, folder=folder)[variant]
        assert cell.status == "failed"
        assert ends(left_pid(folder, "grandchild"))

    def test_by_a_variant_that_died_beside_its_fork(self, folder: Path):
        # The fork keeps the pipe open that the result would have come through.
        cell = compare("killed-fork", folder=folder, budget=3.0)["killed-fork"]
        assert (cell.status, cell.reason) == (
            "failed",
            "The child process was killed by signal 9 (SIGKILL) without a result.",
        )
        assert ends(left_pid(folder, "grandchild"))

    @pytest.mark.parametrize("variant", ["endless", "silent", "silent-parent"])
    def test_after_the_parent_was_killed(self, folder: Path, variant: str):
        parent = subprocess.Popen(
            [sys.executable, str(HELPER), f"toy[folder={folder}]", str(LONG), variant],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=ENVIRONMENT,
        )
        try:
            left_pid(folder)
            family = psutil.Process(parent.pid).children(recursive=True)
            assert len(family) >= 2
        finally:
            parent.kill()
            parent.wait()
        alive = [process for process in family if not ends(process.pid, seconds=5)]
        for process in alive:
            process.kill()
        assert alive == []


class TestStandardOutput:
    def run(self, variant: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(HELPER), "toy", str(LONG), variant, *arguments],
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            timeout=LONG,
            check=False,
        )

    def test_it_carries_what_was_asked_for_and_nothing_else(self):
        done = self.run("prints")
        assert done.returncode == 0, done.stderr
        reference, prints = json.loads(done.stdout)
        assert (reference["status"], prints["status"]) == ("ok", "ok")
        assert prints["decision"] == "same"
        for noise in ("preparing", "running", "below Python", "of a grandchild"):
            assert "noise" in done.stderr
            assert noise in done.stderr

    @pytest.mark.parametrize("module", ["noisy_module", "broken_module"])
    def test_a_module_that_prints_or_cannot_be_preloaded_does_not_disturb_it(self, module: str):
        done = self.run("same", module)
        assert done.returncode == 0, done.stderr
        assert [cell["status"] for cell in json.loads(done.stdout)] == ["ok", "ok"]
