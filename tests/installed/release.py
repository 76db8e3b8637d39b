"""Build sdist and wheel, check them, and run README's snippets from the wheel under each Python.

    python tests/installed/release.py FBGEMM TORCHREC

`make wheel` calls it with the releases of fbgemm and TorchRec. Environments stay in build/wheel/.
"""

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

from environments import PACKAGES, ROOT

PYTHONS = ("3.11", "3.12", "3.13")
TOOLS = ("build==1.6.1", "twine==7.0.0")
UPSTREAM = ("torch", "pyre-extensions", "tensordict", "torchmetrics", "tqdm")
"""torch, and the requirements of TorchRec except fbgemm; requirements.txt has their releases."""
FOLDER = ROOT / "build" / "wheel"
LICENCE = "LICEN[CS]E*"


class Refused(Exception):
    """A release that must not be published."""


def run(*words: str | Path, folder: Path = FOLDER) -> str:
    """Run a program in a folder and return its output; raise Refused if it fails."""
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout


def inputs() -> set[str]:
    """Return the files that a build needs."""
    inside = (f"{package}/**/*" for package in PACKAGES)
    patterns = ("pyproject.toml", "README.md", LICENCE, *inside)
    found = (path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file())
    return {path.relative_to(ROOT).as_posix() for path in found if "__pycache__" not in path.parts}


def copy_inputs(folder: Path) -> Path:
    """Copy the files that a build needs, because a build leaves files among its sources."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in inputs():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def check_contents(wheel: Path, sdist: Path) -> None:
    """Raise Refused unless both have all files of the packages, each licence, and nothing else."""
    held = zipfile.ZipFile(wheel).namelist()
    files = {name.partition(".dist-info/licenses/")[2] or name for name in held}
    files = {name for name in files if ".dist-info/" not in name}
    _compare(wheel, files, inputs() - {"pyproject.toml", "README.md"})
    with tarfile.open(sdist) as opened:
        files = {member.name.partition("/")[2] for member in opened if member.isfile()}
    files = {name for name in files if ".egg-info/" not in name}
    _compare(sdist, files - {"PKG-INFO", "setup.cfg"}, inputs())


def _compare(archive: Path, found: set[str], expected: set[str]) -> None:
    for what, names in (("lacks", expected - found), ("has also", found - expected)):
        if names:
            raise Refused(f"{archive.name} {what} {', '.join(sorted(names))}")


def build() -> Path:
    """Build the sdist, and the wheel from it; check both and return the wheel."""
    tools = FOLDER / "tools" / "bin" / "python"
    if not tools.exists():
        run(sys.executable, "-m", "venv", FOLDER / "tools")
    run(tools, "-m", "pip", "install", *TOOLS)
    shutil.rmtree(FOLDER / "dist", ignore_errors=True)
    run(tools, "-m", "build", "--outdir", FOLDER / "dist", copy_inputs(FOLDER / "source"))
    wheel, sdist = (next((FOLDER / "dist").glob(f"*{suffix}")) for suffix in (".whl", ".tar.gz"))
    run(tools, "-m", "twine", "check", "--strict", sdist, wheel)
    check_contents(wheel, sdist)
    for path in (sdist, wheel):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB, contents checked")
    if not any(ROOT.glob(LICENCE)):
        print("There is no licence file: without one nobody may use what is published.")
    return wheel


def check_python(python: str, wheel: Path, upstream: tuple[str, ...]) -> str:
    """Install the wheel next to torch and TorchRec, run README's snippets, return their output."""
    environment, job = FOLDER / f"python{python}", FOLDER / "job"
    program = environment / "bin" / "python"
    if not program.exists():
        run(f"python{python}", "-m", "venv", environment)
    fbgemm, torchrec = upstream
    pip = (program, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "install", "--constraint", ROOT / "requirements.txt", *UPSTREAM, fbgemm)
    run(*pip, "install", "--no-deps", torchrec)
    run(*pip, "uninstall", "--yes", "shardbench")
    run(*pip, "install", wheel)
    shutil.rmtree(job, ignore_errors=True)
    job.mkdir()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    shown = run(environment / "bin" / "shardbench", "--version", folder=job).strip()
    if shown != f"shardbench {version}":
        raise Refused(f"Python {python} has {shown}, and pyproject.toml has {version}.")
    script = ROOT / "tests" / "installed" / "readme_job.py"
    return run(program, "-I", script, ROOT / "README.md", folder=job).strip()


def main(*upstream: str) -> None:
    """Build and check, and report which Pythons were checked."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    wheel = build()
    checked = []
    for python in PYTHONS:
        try:
            run(f"python{python}", "-c", "")
        except (OSError, Refused):
            print(f"Python {python}: skipped, no python{python} on the path starts", flush=True)
            continue
        output = check_python(python, wheel, upstream)
        print(f"Python {python}: README's snippets ran with {output}", flush=True)
        checked.append(python)
    if not checked:
        raise Refused("The wheel was not installed under any Python.")
    print(f"Checked under Python {', '.join(checked)}.")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Refused as error:
        sys.exit(str(error))
