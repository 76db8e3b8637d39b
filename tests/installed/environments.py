"""Virtual environments for tests, with the libraries that are installed in this environment."""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("harness", "planners", "reports", "shardbench")


class MadeEnvironment:
    """A virtual environment with this one's libraries, except shardbench and those in `without`.

    The libraries are symbolic links. Nothing else of the current environment or of the checkout is
    on the import path.
    """

    def __init__(self, folder: Path, without: Collection[str] = ()) -> None:
        self.folder = folder
        venv.create(folder / "environment")
        libraries = folder / "libraries"
        libraries.mkdir()
        here = sysconfig.get_path("purelib")
        for entry in Path(here).iterdir():
            name = entry.name.partition("-")[0].removesuffix(".py")
            if name not in {"shardbench", "__editable__.shardbench", *without}:
                (libraries / entry.name).symlink_to(entry)
        site = sysconfig.get_path(
            "purelib", vars={"base": str(folder / "environment")}, scheme="venv"
        )
        Path(site, "libraries.pth").write_text(f"{libraries}\n", encoding="utf-8")
        self.bin = folder / "environment" / "bin"
        self.python = self.bin / "python"

    def run(
        self, *words: str | Path, path: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in the folder, with `path` first on the import path."""
        variables = {**os.environ, "COLUMNS": "120", **environment}
        for name in ("PYTHONPATH", "VIRTUAL_ENV"):
            variables.pop(name, None)
        if path is not None:
            variables["PYTHONPATH"] = str(path)
        return subprocess.run(
            [str(word) for word in words],
            cwd=self.folder, env=variables, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def pip(self, *words: str | Path) -> str:
        """Run pip in the environment, without an index; it must succeed."""
        done = self.run(
            sys.executable, "-m", "pip", "--disable-pip-version-check",
            "--python", self.python, *words,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout
