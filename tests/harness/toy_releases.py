"""A library of several releases as wheels in a folder, a driver of it, and a family that has it."""

import zipfile
from pathlib import Path

from toy_library import LIBRARY, write_driver

from harness.contract import Releases, calls

DRIVER = f"""
import runpy
import time
import toylib

# Importing it with its package would be most of what a child does.
count_calls = runpy.run_path({calls.__file__!r})["count_calls"]

def size(request):
    return int(request["workload"].partition("size=")[2].rstrip("]") or 3)

def times(request):
    wall, cpu = time.perf_counter(), time.process_time()
    plan = toylib.enumerate_options(size(request))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {{"release": toylib.RELEASE, "fingerprint": str(plan),
            "wall_s": wall + 0.001, "cpu_s": cpu + 0.001,
            "phases": {{"enumerate": 0.25, "other": 0.5}}}}

def counts(request):
    _, calls = count_calls(lambda: toylib.enumerate_options(size(request)))
    return times(request) | {{"counters": {{"copies": toylib.COPIES}}, "quality": {{"cost": 1.0}},
                             "calls": calls}}

HANDLERS = {{"times": times, "counts": counts}}
"""

SOURCE = """
RELEASE = "{release}"
COPIES = {copies}

def look(option):
    return dir(option)

def enumerate_options(size):
    for option in range(size * {scans}):
        look(option)
    return list(range(size))
"""


def _files(release: str, scans: int, copies: int, source: str) -> dict[str, str]:
    """The files of a release by their paths, which scans `scans` times for each option."""
    info = f"{LIBRARY}-{release}.dist-info"
    files = {
        f"{LIBRARY}/__init__.py": source
        or SOURCE.format(release=release, scans=scans, copies=copies),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {LIBRARY}\nVersion: {release}\n"
        "Requires-Dist: something-that-does-not-exist\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    return {**files, f"{info}/RECORD": record}


def write_wheel(
    folder: Path, release: str, scans: int = 1, copies: int = 0, source: str = ""
) -> Path:
    """Write a wheel of a release."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{LIBRARY}-{release}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in _files(release, scans, copies, source).items():
            wheel.writestr(name, text)
    return path


def write_installed(
    folder: Path, release: str, scans: int = 1, copies: int = 0, source: str = ""
) -> Path:
    """Write a release as pip would leave it in the folder where releases are kept."""
    installed = folder / f"{LIBRARY}-{release}"
    for name, text in _files(release, scans, copies, source).items():
        (installed / name).parent.mkdir(parents=True, exist_ok=True)
        (installed / name).write_text(text)
    return installed


def declared(folder: Path) -> Releases:
    """Return the library as a family declares it, its driver written into a folder."""
    return Releases(
        library=LIBRARY,
        driver=write_driver(folder, DRIVER),
        problems=("toy[size=3]/dgx_a100_80gb:8", "toy[size=30]/dgx_a100_80gb:8"),
        profiled="enumerate",
        phases=("enumerate", "other"),
        counters={"copies": "copies that were made"},
    )
