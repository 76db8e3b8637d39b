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


class Refused(Exception):
    """A release that must not be published."""


def run(*words: str | Path, folder: Path = FOLDER) -> str:
    """Run a program in a folder and return its output."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Refused(f"{' '.join(map(str, words))} failed:\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout


def copy_sources(folder: Path) -> Path:
    """Copy the files that a build needs, because a build leaves files among its sources."""
    shutil.rmtree(folder, ignore_errors=True)
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for path in (ROOT / "pyproject.toml", ROOT / "README.md", *licences()):
        shutil.copy(path, folder)
    return folder


def licences() -> list[Path]:
    """Return the licence files of the project."""
    return sorted(ROOT.glob("LICEN[CS]E*"))


def sources() -> set[str]:
    """Return the files of the packages, code and data."""
    return {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def check_contents(wheel: Path, sdist: Path) -> None:
    """Check that both have every file of the packages and each licence, and nothing else."""
    names = set(zipfile.ZipFile(wheel).namelist())
    metadata = {name for name in names if name.partition("/")[0].endswith(".dist-info")}
    kept = {name.partition("/licenses/")[2] for name in metadata if "/licenses/" in name}
    _compare(wheel, names - metadata | kept, sources() | {path.name for path in licences()})
    with tarfile.open(sdist) as opened:
        files = {member.name.partition("/")[2] for member in opened if member.isfile()}
    made = {name for name in files if ".egg-info/" in name} | {"PKG-INFO", "setup.cfg"}
    inputs = {"pyproject.toml", "README.md", *(path.name for path in licences())}
    _compare(sdist, files - made, sources() | inputs)


def _compare(archive: Path, found: set[str], expected: set[str]) -> None:
    for word, names in (("lacks", expected - found), ("has also", found - expected)):
        if names:
            raise Refused(f"{archive.name} {word} {', '.join(sorted(names))}")


def build() -> Path:
    """Build sdist, and the wheel from it; check both and return the wheel."""
    tools = FOLDER / "tools" / "bin" / "python"
    if not tools.exists():
        run(sys.executable, "-m", "venv", FOLDER / "tools")
    run(tools, "-m", "pip", "install", *TOOLS)
    shutil.rmtree(FOLDER / "dist", ignore_errors=True)
    run(tools, "-m", "build", "--outdir", FOLDER / "dist", copy_sources(FOLDER / "source"))
    made = sorted((FOLDER / "dist").iterdir())
    run(tools, "-m", "twine", "check", "--strict", *made)
    wheel, sdist = sorted(made, key=lambda path: path.suffix, reverse=True)
    check_contents(wheel, sdist)
    for path in made:
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB, contents checked")
    if not licences():
        print("There is no licence file: without one nobody may use what is published.")
    return wheel


def found(python: str) -> bool:
    """Return whether a Python is on the path and starts."""
    program = shutil.which(f"python{python}")
    tried = program and subprocess.run([program, "-c", ""], capture_output=True, check=False)
    return bool(tried) and tried.returncode == 0


def check_python(python: str, wheel: Path, fbgemm: str, torchrec: str) -> str:
    """Install the wheel next to torch and TorchRec, run README's snippets, return what they say."""
    environment = FOLDER / f"python{python}"
    program = environment / "bin" / "python"
    if not program.exists():
        run(f"python{python}", "-m", "venv", environment)
    pip = (program, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "install", "--constraint", ROOT / "requirements.txt", *UPSTREAM, fbgemm)
    run(*pip, "install", "--no-deps", torchrec)
    run(*pip, "uninstall", "--yes", "shardbench")
    run(*pip, "install", wheel)
    job = FOLDER / "job"
    shutil.rmtree(job, ignore_errors=True)
    job.mkdir()
    script = ROOT / "tests" / "installed" / "readme_job.py"
    said = run(program, "-I", script, ROOT / "README.md", folder=job).strip()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    told = run(environment / "bin" / "shardbench", "--version", folder=job)
    if told.split() != ["shardbench", version]:
        raise Refused(f"Python {python} has {told.strip()}, and pyproject.toml {version}")
    return said


def main(fbgemm: str, torchrec: str) -> None:
    """Build and check, and say which Pythons were checked."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    wheel = build()
    checked = []
    for python in PYTHONS:
        if not found(python):
            print(f"Python {python}: skipped, there is no python{python} on the path", flush=True)
            continue
        said = check_python(python, wheel, fbgemm, torchrec)
        print(f"Python {python}: README's snippets ran with {said}", flush=True)
        checked.append(python)
    print(f"Checked under Python {', '.join(checked) or 'none'}.")
    if not checked:
        raise Refused("The wheel was installed nowhere.")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Refused as error:
        sys.exit(str(error))
