"""The parts that the scripts of the record share: problems, new processes, and Markdown tables."""

import argparse
import logging
import multiprocessing
import os
import random
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from unittest import mock

import torch
from msgspec import json, to_builtins
from torchrec.distributed.planner.types import Topology
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from harness.contract import ShardbenchError
from harness.contract.registry import load_registry
from harness.estimates.validation import Validation
from harness.measuring.environment import environment
from harness.model.declared import checked
from harness.model.ids import ProblemId
from harness.topologies.lookup import find_topology
from shardbench.problems import elsewhere

R = TypeVar("R")


def device_of(doc: str | None) -> str:
    """Return the --device of a script's command line, `cpu` or `cuda`.

    A device that is not there ends the script with a sentence and exit code 2.
    """
    return str(_arguments(doc).device)


def device_and_machine_of(doc: str | None) -> tuple[str, str]:
    """Return the --device of a command line, and its argument: a calibrated machine.

    Another machine than the one at hand ends the script with a sentence and exit code 2, since what
    is measured here says nothing about its estimates.
    """
    arguments = _arguments(doc, "machine")
    here = torch.cuda.get_device_name() if arguments.device == "cuda" else environment(0).cpu
    try:
        why = elsewhere(load_registry().find("embedding"), arguments.machine, here or "")
    except ShardbenchError as error:
        why = str(error)
    if why:
        print(why, file=sys.stderr)
        sys.exit(2)
    return arguments.device, arguments.machine


def _arguments(doc: str | None, *positional: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    for name in positional:
        parser.add_argument(name)
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.exit(2, "There is no CUDA device that torch can use.\n")
    return arguments


def be_quiet() -> None:
    """Suppress warnings of libraries and of plans."""
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")


def in_new_process(function: Callable[..., R], *arguments: object, **variables: str) -> R:
    """Call a script's function in a new process, which also has these environment variables."""
    spawned = multiprocessing.get_context("spawn")
    with (
        mock.patch.dict(os.environ, variables),
        ProcessPoolExecutor(1, spawned, initializer=be_quiet) as process,
    ):
        return process.submit(function, *arguments).result()


def timed(work: Callable[[], R], clock: Callable[[], float] = time.process_time) -> tuple[R, float]:
    """Return what a function returns, and the seconds that it took."""
    began = clock()
    result = work()
    return result, clock() - began


def peak_gib() -> float:
    """Return the peak of this process's memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], texts: int = 1) -> None:
    """Print a table in Markdown, each row when it is made; `texts` columns come before numbers."""
    rules = ["---"] * texts + ["---:"] * (len(columns) - texts)
    print(f"| {' | '.join(columns)} |\n| {' | '.join(rules)} |", flush=True)
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def rows_of_all(
    doing: str, problems: Iterable[str], rows: Callable[[str], list[list[str]]]
) -> list[list[str]]:
    """Return the rows of all problems, without those that fail, which are named with the reason.

    Ends the process with code 2 if no rows are left.
    """
    table: list[list[str]] = []
    for problem in problems:
        print(f"{doing} {problem}", file=sys.stderr)
        try:
            table += rows(problem)
        except ShardbenchError as error:
            print(f"{problem}: {error}", file=sys.stderr)
    if not table:
        sys.exit(2)
    return table


def build_problem(family: str, problem: str) -> Any:
    """Build a family's problem, e.g. `mlp/dgx_h100:8`."""
    given = ProblemId.parse(problem)
    topology = find_topology(given.topology, given.gpus)
    return load_registry().find(family).work.build(given.workload, topology)


def model_of(numbers: Iterable[int]) -> torch.nn.Module:
    """Return a model with the numbered tables, in this order, on the meta device."""
    tables = []
    for number in numbers:
        draw = random.Random(number)
        tables.append(
            EmbeddingBagConfig(
                name=f"table_{number}",
                num_embeddings=int(10 ** draw.uniform(3, 7)),
                embedding_dim=draw.choice([16, 32, 64, 128]),
                feature_names=[f"feature_{number}"],
            )
        )
    model = torch.nn.Module()
    model.sparse = EmbeddingBagCollection(tables, device=torch.device("meta"))
    return model


def gpus_of(count: int, hbm_mib: int) -> Topology:
    """Return GPUs with MiB of HBM, eight on each host."""
    return Topology(count, "cuda", local_world_size=min(8, count), hbm_cap=hbm_mib * 2**20)


def shardbench(*words: object) -> int:
    """Run a command with its output on stderr, and return its exit code."""
    command = [sys.executable, "-m", "shardbench", *map(str, words)]
    return subprocess.run(command, check=False, stdout=sys.stderr).returncode


@contextmanager
def plan_file(workload: str, topology: str, gpus: int) -> Iterator[Path]:
    """Yield a file with the best plan of a problem of the family `embedding`."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "plan.json"
        if shardbench("plan", "-w", workload, "-t", topology, "-n", gpus, "-o", file):
            sys.exit(2)  # the command says why
        yield file


def validated(kind: type[R], *words: object) -> list[R]:
    """Return what `shardbench validate` writes: a `Validation` or `MemoryValidation` a problem.

    Some problems may be refused, e.g. for lack of a GPU's memory; without any, the script ends.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / "validated.json"
        shardbench("validate", *words, "--json", file)
        if not file.exists():
            sys.exit(2)  # the command says why
        documents = json.decode(file.read_bytes())
    several = documents if isinstance(documents, list) else [documents]
    return [checked(document, kind, "shardbench validate") for document in several]


def keep_plans(validations: Iterable[Validation], name: str) -> None:
    """Write each measured plan as a line of `record/plans/<name>.jsonl`, for other cost models."""
    lines = []
    for validation in validations:
        problem = {
            "problem": validation.problem,
            "device": validation.device,
            "inputs": validation.inputs,
            "packages": validation.environment.packages,
        }
        lines += [json.encode(problem | to_builtins(plan)) for plan in validation.decisions]
    file = Path(__file__).parents[1] / "plans" / f"{name}.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"\n".join(lines) + b"\n")
