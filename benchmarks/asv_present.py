"""The part that asv's ways to a commit share: the present interpreter, nothing installed."""

import os
import sys
from pathlib import Path
from typing import Any

from asv import util
from asv.environment import Environment, EnvironmentUnavailable
from asv.machine import Machine, MachineCollection

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def describe_machine() -> None:
    """Accept asv's description of this machine, for where nobody can be asked for a better one."""
    known = Path(MachineCollection.get_machine_file_path()).exists()
    if not (known or sys.stdout.isatty() or "machine" in sys.argv):
        machine = Machine.get_defaults()
        MachineCollection.save(machine["machine"], machine)


class PresentPython(Environment):  # type: ignore[misc]  # asv has no types
    """The present interpreter; a subclass says how it comes to a commit."""

    def __init__(self, conf: Any, python: str, *arguments: Any) -> None:
        """Raise EnvironmentUnavailable for any Python but the present one."""
        if python != _PYTHON:
            raise EnvironmentUnavailable(
                f"Environment '{self.tool_name}' runs the present Python, {_PYTHON}, not {python}."
            )
        super().__init__(conf, python, *arguments)

    def check_presence(self) -> bool:
        """Say that there is nothing to install."""
        return True

    def create(self) -> None:
        """Make the folder that belongs to the commit."""
        Path(self._path).mkdir(parents=True, exist_ok=True)

    def run_present(
        self, args: list[str], path: str, variables: dict[str, str], **options: Any
    ) -> Any:
        """Run the present interpreter with a path for modules, and with these variables."""
        # asv's runner reads the path from ASV_PYTHONPATH, and its child processes from PYTHONPATH.
        environment = {
            **options.pop("env", os.environ),
            **self._global_env_vars,
            "ASV_PYTHONPATH": path,
            "PYTHONPATH": path,
            **variables,
        }
        return util.check_output([sys.executable, *args], env=environment, **options)
