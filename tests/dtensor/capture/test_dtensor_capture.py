"""A captured step contains every op but no values, and capturing does not affect the script."""

import json
import threading

import pytest
import torch
from captured_steps import STEPS, bits, captured
from small_world import counted, mesh_of, placed
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.experimental import register_sharding
from torch.distributed.tensor.parallel import loss_parallel
from torch_state import is_changed, settings_now, torch_now

from harness.contract import UsageError
from harness.planning.capture import capture
from planners.dtensor.accelerate import accelerate
from planners.dtensor.dispatch.torch_path import clear_torch_caches

SECRET = "zanzibar"
NUMBER = 0.4242424242


@pytest.fixture(scope="module", autouse=True)
def secret_op():
    @torch.library.custom_op(f"{SECRET}::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @double.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    @register_sharding(getattr(torch.ops, SECRET).double.default)
    def _(x):
        return [([Replicate()], [Replicate()]), ([Shard(0)], [Shard(0)])]

    return double


@pytest.fixture(autouse=True)
def cold():
    clear_torch_caches()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "step.json"


def held(path):
    return json.loads(path.read_text())


def ops(path):
    document = held(path)
    return [document["calls"][index]["op"] for index in document["sequence"]]


@pytest.mark.parametrize("name", STEPS)
def test_a_step_has_the_same_bits_and_torch_decides_as_often(name, path):
    seen = []
    for is_captured in (False, True):
        step = STEPS[name]()
        step()
        clear_torch_caches()
        made = captured(path, step) if is_captured else step()
        seen.append((bits(made), torch._C._get_DTensor_sharding_propagator_cache_stats()))
    assert seen[0] == seen[1]
    assert held(path)["left_out"] == {}


def test_every_op_is_in_it_in_order_with_its_moved_inputs(path):
    mesh = mesh_of(2, 2)
    x = placed(mesh, counted(2, 4), Shard(0), Replicate()).requires_grad_()
    y = placed(mesh, counted(4, 4), Replicate(), Partial())
    captured(path, lambda: [torch.relu(y), (x @ y).sum().backward(), torch.relu(y)])
    document = held(path)
    assert ops(path)[:4] == [
        "aten.relu.default",
        "aten.mm.default",
        "aten.sum.default",
        "aten.ones_like.default",
    ]
    assert document["sequence"][0] == document["sequence"][-1] == 0
    relu, mm, total, *_ = document["calls"]
    assert relu["moves"] == [[["R", "P(sum)"], ["R", "R"]]]
    assert total["moves"] == []
    assert document["tensors"][mm["args"][0]["tensor"]] == {
        "mesh": 0,
        "placements": [["shard", 0], ["replicate"]],
        "shape": [4, 4],
        "stride": [4, 1],
        "dtype": "float32",
        "requires_grad": True,
    }
    assert document["results"][mm["results"][0]]["placements"] == ["S(0)", "P(sum)"]
    assert document["meshes"] == [
        {"shape": [2, 2], "strides": [2, 1], "names": ["outer", "middle"]}
    ]
    assert document["ranks"] == 4


def test_a_redistribution_that_is_asked_for_is_no_op(path):
    x = placed(mesh_of(4), counted(2, 4), Shard(0))
    captured(path, lambda: [torch.relu(x), x.redistribute(placements=[Replicate()]).full_tensor()])
    assert ops(path) == ["aten.relu.default"]


def test_no_value_is_in_it(path):
    x = placed(mesh_of(4), torch.full((2, 4), NUMBER), Shard(0))

    def step():
        loss = torch.relu(x).sum()
        return x * float(torch.tensor(NUMBER)), x * NUMBER, x * 3, x + torch.tensor(NUMBER), loss

    captured(path, step)
    text = path.read_text()
    assert "0.42" not in text
    times = [call["args"][1] for call in held(path)["calls"] if call["op"] == "aten.mul.Tensor"]
    assert times[1:] == [{"number": "float", "index": 1}, {"number": "int", "index": 2}]


def test_private_names_are_not_in_a_hashed_file(path, secret_op):
    mesh = mesh_of(4)
    named = type(mesh)("cpu", mesh.mesh, mesh_dim_names=(SECRET,))
    x = placed(named, counted(2, 4), Shard(0))

    def step():
        return secret_op(torch.relu(x))

    captured(path, step)
    assert SECRET in held(path)["meshes"][0]["names"]
    assert ops(path) == ["aten.relu.default", f"{SECRET}.double.default"]
    captured(path, step, hash_names=True)
    assert SECRET not in path.read_text()
    assert ops(path) == ["aten.relu.default"]
    assert held(path)["left_out"] == {"an op with a private name": 1}


def test_ops_that_cannot_be_written_down_are_counted(path):
    mesh = mesh_of(4)
    x = placed(mesh, counted(2, 4), Shard(0))
    logits = placed(mesh, counted(4, 2), Shard(1)).requires_grad_()

    def step():
        torch.relu(x)
        x.uniform_(generator=torch.Generator())
        with loss_parallel():
            torch.nn.functional.cross_entropy(logits, torch.arange(4)).backward()
        with CommDebugMode():
            torch.relu(x)
        return torch.relu(x)

    captured(path, step)
    assert held(path)["left_out"] == {
        "a generator of random numbers": 1,
        "an op with a handler of its own": 4,
        "under a dispatch mode": 1,
    }
    assert ops(path)[0] == ops(path)[-1] == "aten.relu.default"


def test_ops_of_other_threads_are_in_it(path):
    x = placed(mesh_of(4), counted(2, 4), Partial())

    def step():
        threads = [threading.Thread(target=torch.relu, args=(x,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    captured(path, step)
    assert held(path)["sequence"] == [0] * 4
    assert held(path)["calls"][0]["moves"] == [[["P(sum)"], ["R"]]]


def test_an_accelerated_step_is_captured_alike(path, tmp_path):
    step = STEPS["mlp"]()
    step()
    captured(path, step)
    other = tmp_path / "accelerated.json"
    with accelerate():
        captured(other, step)
    first, second = held(path), held(other)
    assert [(call["op"], call["results"], call["moves"]) for call in second["calls"]] == [
        (call["op"], call["results"], call["moves"]) for call in first["calls"]
    ]
    for part in ("sequence", "tensors", "results", "left_out"):
        assert second[part] == first[part]


def test_torch_is_as_before_when_a_capture_is_left(path):
    x = placed(mesh_of(4), counted(2, 4), Shard(0))
    captured(path, lambda: torch.relu(x))
    before, settings = torch_now(), settings_now()
    with capture("dtensor", path):
        torch.relu(x)
        assert is_changed(before)
    assert not is_changed(before)

    def failing(error):
        torch.sigmoid(x)
        raise error

    with pytest.raises(KeyError):
        captured(path, lambda: failing(KeyError("mine")))
    with pytest.raises(RuntimeError):
        captured(path, lambda: [torch.sigmoid(x), torch.mm(x, x)])
    assert not is_changed(before)
    assert settings_now() == settings
    assert ops(path) == ["aten.sigmoid.default"]


def test_a_second_capture_inside_is_refused_and_the_first_goes_on(path, tmp_path):
    x = placed(mesh_of(4), counted(2, 4), Shard(0))
    with capture("dtensor", path):
        with (
            pytest.raises(UsageError, match="A step is captured already; leave that one first"),
            capture("dtensor", tmp_path / "other.json"),
        ):
            pass
        torch.relu(x)
    assert ops(path) == ["aten.relu.default"]


def test_a_script_without_such_ops_is_warned_and_goes_on(path):
    with (
        pytest.warns(UserWarning, match=r"was not written: No op on a DTensor was seen\.$"),
        capture("dtensor", path),
    ):
        torch.relu(torch.ones(2))
    assert not path.exists()


def test_strided_shards_and_norms_are_in_it(path):
    captured(path, STEPS["sharded"]())
    kinds = {placement[0] for tensor in held(path)["tensors"] for placement in tensor["placements"]}
    assert kinds == {"replicate", "shard", "strided", "norm"}


def test_a_mesh_is_seen_from_rank_0_whatever_the_rank(path):
    mesh = mesh_of(2, 4)
    inner = mesh["middle"]
    assert isinstance(
        captured(path, lambda: torch.relu(placed(inner, counted(2), Shard(0)))), DTensor
    )
    assert held(path)["meshes"] == [{"shape": [4], "strides": [1], "names": ["middle"]}]
    assert held(path)["ranks"] == 8
