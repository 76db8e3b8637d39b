"""On bad input, every command writes no file, prints one sentence and exits with code 2."""

import shlex
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
SAVED = ROOT / "tests/topologies/data"
WHERE = "-w synthetic[tables=2,seed=1] -t dgx_a100_80gb -n 8"
COMPARE = f"compare embedding {WHERE}"
ID = "synthetic[tables=2,seed=1]/dgx_a100_80gb:8"
PROFILE = f"profile embedding/upstream@{ID}"
STAGES = ("Usage: ", "Try ", "building the problem", "planning with", "explaining")
EXPLAIN = "explain embedding/uniform@synthetic[tables=5,seed=1]/dgx_a100_80gb:4"
VALIDATE = "validate -w synthetic[tables=3,seed=4,memory=roomy] -t dgx_a100_80gb -n 2"
NO_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
MATRIX = f"topology capture -o m.csv --from-topo {SAVED / 'h100_4_hgx.txt'}"


def benchmark(name: str, parameters: str) -> str:
    return f"profile {shlex.quote(f'families.{name}.time_plan({parameters})')}"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("list variants embeding", "did you mean embedding?"),
        ("list topologies embedding", "Topologies belong to no family: leave out 'embedding'."),
        # compare
        (f"{COMPARE} -t dgx_h10", "did you mean dgx_h100"),
        (f"{COMPARE} -w dlrm-85", "did you mean dlrm-856?"),
        (f"{COMPARE} -w dlrm-856[table=3]", "did you mean tables?"),
        (f"{COMPARE} -n 12", "a multiple of it, not 12"),
        (f"{COMPARE} --budget 0", "'--budget': 0.0 is not in the range x>0"),
        (f"{COMPARE} --json no/such/folder.json", "is not a folder"),
        (f"{COMPARE} -w none.csv", "none.csv cannot be read"),
        (f"{COMPARE} --against=", "--against must not be empty."),
        ("compare embedding -w dlrm-856", "name one with --topology"),
        (f"compare embedding@{ID} -n 8", "names the problem already; leave out -w, -t"),
        # report
        ("report none.jsonl", "none.jsonl"),
        ("report none.jsonl --large", "RESULTS are not measured"),
        ("report a.jsonl b.jsonl --flames", "takes no --flames"),
        # plan
        (f"plan {WHERE} --machine xeno", "Unknown machine 'xeno'"),
        (f"plan {WHERE} --machine none.toml", "none.toml cannot be read"),
        (f"{COMPARE} --machine none.toml", "none.toml cannot be read"),
        ("compare reshard@transformer/dgx_h100:4 --machine x", "family 'reshard' takes none"),
        # profile
        (f"profile embedding@{ID}", "Name the variant to profile"),
        (f"{PROFILE} compiled", "already; leave out 'compiled'."),
        (f"profile embedding/upstreem@{ID}", "did you mean upstream?"),
        ("profile embedding/upstream@dlrm-856", "Problem 'dlrm-856' is malformed"),
        (benchmark("embedding", "exit(), ''"), "is malformed; write it as asv"),
        (f"{PROFILE} --against upstream", "another variant than"),
        (f"{PROFILE} --out /dev/null/here", "/dev/null/here cannot be written"),
        # explain
        ("explain embedding@synthetic[tables=5]/dgx_a100_80gb:4", "Name the variant to explain"),
        (f"{EXPLAIN} --rank 4", "ranks are from 0 to 3"),
        (f"{EXPLAIN} -o why.txt", "must end in .md or .json"),
        # selftest
        ("selftest --rounds 0", "0 is not in the range x>=1"),
        # sweep
        ("sweep none.toml", "none.toml cannot be read: No such file or directory."),
        ("sweep defalt", "Unknown suite or family 'defalt'; did you mean default?"),
        ("sweep ,", "Name a suite: a .toml file, default, large, or families."),
        ("sweep default --executor dask", "--executor dask needs --scheduler"),
        ("sweep default --scheduler x", "--executor dask needs --scheduler, and nothing else"),
        ("sweep default --seconds nan", "nan is not a finite number"),
        # validate and calibrate
        (f"{VALIDATE} --plans 2", "--plans must be from 3"),
        (f"{VALIDATE} --device tpu", "must be cpu or cuda"),
        (f"{VALIDATE} --indices x", "--indices must be uniform"),
        (f"{VALIDATE} --figure f.gif", "must end in .svg"),
        (f"{VALIDATE} --seconds 0", "not in the range"),
        (f"{VALIDATE} --gib -1", "not in the range"),
        ("validate -w transformer -t dgx_h100 -n 4", "Unknown workload"),
        (f"{VALIDATE} --memory --indices zipf", "--memory has neither"),
        (f"{VALIDATE} --memory --gib 0.02", "--gib allows 0.02. Give it more"),
        pytest.param(f"{VALIDATE} --memory --device cuda", "no CUDA dev", marks=NO_CUDA),
        ("calibrate --share 0", "not in the range"),
        ("calibrate -o machine.txt", "must end in .toml"),
        # workload show
        ("workload show nothing", "Unknown workload 'nothing'"),
        ("workload show dlrm-856 --sort byte", "Unknown column 'byte'; did you mean bytes?"),
        ("workload show dlrm-856 --out x.pdf", "x.pdf must end in .csv."),
        *(
            (f"workload show {name}", "depends on the machines")
            for name in ("transformer", "mlp", "synthetic[memory=tight]", "all-pairs")
        ),
        ("workload show paddle -t dgx_h100 -n 16", "once Paddle has run"),
        # workload import
        ("workload import none.csv -o x.csv", "none.csv cannot be read"),
        ("workload import none:build -o x.csv", "No module named 'none'"),
        ("workload import none.csv -o x.txt", "must end in .csv or .parquet"),
        ("workload import none.csv -o x[1].csv", "leave out '[', ']' and '@'"),
        ("workload import none.csv -o x.csv --format xml", "Unknown format 'xml'"),
        ("workload import none.csv -o x.csv --column rows", "must be given as FIELD=..."),
        ("workload import n.csv -o x.csv --assume dim=5 --assume dim=5", "gives 'dim' twice"),
        ("workload import none.csv -o x.csv --family reshard", "cannot import"),
        ("workload import none.data -o x.csv", "cannot be told from its name"),
        # topology capture
        ("topology capture -o m.txt", "m.txt must end in .csv"),
        ("topology capture -o m.csv --name 'a b'", "not 'a b'"),
        ("topology capture -o m.csv --gpu T4", "--gpu goes with --from-topo"),
        (MATRIX, "name them with --gpu"),
        (f"{MATRIX} --gpu H100", "may be any of H100-SXM5-80GB"),
        # topology show
        ("topology show none.txt", "none.txt cannot be read"),
        ("topology show dgx_h100 --gpu T4", "--gpu goes with a saved matrix"),
        (f"topology show {SAVED / 'l40s_4.txt'} -n 4", "--gpus goes with a topology"),
        (f"topology show {ROOT / 'Makefile'}", "no matrix of `nvidia-smi topo -m`"),
        # topology check
        ("topology check none.json", "none.json cannot be read"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(shardbench, tmp_path, command, said):
    """No command makes a file or a folder before it has checked its input."""
    code, out, err = shardbench(*shlex.split(command))
    assert (code, out) == (2, "")
    lines = [line for line in err.splitlines() if line and not line.startswith(STAGES)]
    assert said in lines[-1]
    assert len(lines) == 1
    assert list(tmp_path.iterdir()) == []


PROBLEM = "-w micro[ops=10,inserts=2] -t dgx_h100 -n 4"
ODD = ("[", "'", "[red]x[/red]", "\x1b[31m", "a\nb", "\udcff", "n" * 10_000, "#.csv", "@")


@pytest.mark.parametrize(
    "command",
    [
        f"compare {{}} {PROBLEM}",
        *(f"compare reshard {PROBLEM} {option} {{}}" for option in ("-w", "-t", "--against")),
        "plan -t dgx_h100 -n 8 -w {}",
        f"profile reshard {{}} {PROBLEM}",
        "report {}",
        "list workloads {}",
    ],
)
def test_an_odd_name_is_refused_in_one_sentence(shardbench, command):
    """Names of files and of anything else may have every letter."""
    for odd in ODD:
        code, out, err = shardbench(*(odd if word == "{}" else word for word in command.split()))
        assert (code, out, "Traceback" in err) == (2, "", False)
        assert err.count("\n") == 1
        assert err.removesuffix("\n").isprintable()


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("-n", ["-1", "0", "99999999999999999999", "1" * 400, "131080", "x", "", "9" * 5000]),
        ("--budget", ["nan", "inf", "-inf", "-1", "0", "-0.0", "1e400", "x", ""]),
        ("--seed", ["x", "", "9" * 5000]),
    ],
)
def test_a_number_that_cannot_be_is_refused(shardbench, option, values):
    """Numbers beyond all sizes are refused like words."""
    for value in values:
        code, out, err = shardbench("compare", "reshard", *PROBLEM.split(), option, value)
        assert (code, out, "Traceback" in err) == (2, "", False)
