"""A training step in a user's own file is a workload like the family's programs."""

import textwrap

import pytest
from small_world import checked, problem_of

from harness.contract import UsageError, WorkloadSpec
from planners.dtensor.workloads import label

FULLY_SHARDED = """
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from beside import WIDTH

    def step(mesh):
        both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        model = torch.nn.Linear(WIDTH, WIDTH)
        fully_shard(model, mesh=both)
        optimizer = torch.optim.AdamW(model.parameters())
        rows = iter(range(1, 1000))

        def train():
            result = model(torch.ones(next(rows), WIDTH))
            result.sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            return {"result": result}

        return train
"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Return a function that writes a step's file and returns its problem's id."""
    monkeypatch.syspath_prepend(str(tmp_path))  # restored after the test

    def write(text: str, function: str = "step", **parameters: str) -> str:
        (tmp_path / "beside.py").write_text("WIDTH = 8\n")
        (tmp_path / "my_step.py").write_text(textwrap.dedent(text))
        workload = WorkloadSpec(f"{tmp_path / 'my_step.py'}:{function}", parameters)
        return f"{workload}/dgx_a100_80gb:4"

    return write


def test_variants_decide_as_torch_on_a_step_with_new_sizes_and_clipping(written):
    """The parameters and the optimizer's state are results too, and values do not count."""
    problem = problem_of(written(FULLY_SHARDED))
    assert problem.facts()["ops"] > 0
    upstream = checked("upstream", problem)
    for variant in ("interned", "shape-class", "local-step", "accelerated", "exact-miss"):
        assert checked(variant, problem).fingerprint == upstream.fingerprint
    assert len(problem.program.names) == 1 + 2 + 2 * 3  # with two moments and a count of steps


def test_cold_caches_make_every_op_a_miss(written):
    """With caches=cold each call decides all of its ops again."""
    cold, warm = (
        checked("upstream", problem_of(written(FULLY_SHARDED, caches=caches))).counters
        for caches in ("cold", "warm")
    )
    assert cold["misses"] > 0 == warm["misses"]


def test_results_name_the_file_and_its_content(written, tmp_path):
    """Another content of the file is another workload in results."""
    names = []
    for text in ("step = 1", "step = 2"):
        written(text)
        names.append(label(WorkloadSpec(f"{tmp_path}/my_step.py:step", {"dims": "2"})))
    assert len(set(names)) == 2
    assert str(names[0]).startswith("my_step.py:step#")
    assert names[0].parameters == {"dims": "2"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def other(mesh): pass", r"my_step\.py has no function 'step'\."),
        ("import missing_module", r"step failed in line 1: ModuleNotFoundError: No module"),
        ("def step(:", r"step failed: SyntaxError: "),
        ("def step(mesh):\n    raise SystemExit(3)", r"step failed in line 2: SystemExit: 3\."),
        ("def step(mesh):\n    return lambda: 1 / 0", r"step failed in line 2: ZeroDivisionError"),
        ("def step(mesh): pass", r"must return the step, a function, not None\."),
        ("def step(mesh): return int", r"returns a step that calls no op on a DTensor\."),
    ],
)
def test_what_is_wrong_with_a_step_is_one_sentence(written, text, message):
    """The error names the file, the function and the line."""
    with pytest.raises(UsageError, match=message):
        problem_of(written(text))


def test_a_file_that_is_missing_is_refused(tmp_path):
    """The error comes before anything is built."""
    with pytest.raises(UsageError, match=r"gone\.py"):
        label(WorkloadSpec(f"{tmp_path}/gone.py:step"))
