"""Scenes at the edges of DTensor's dispatch end under `accelerate()` as they end in torch.

What random programs draw is not here.
"""

import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from outcomes import is_torchs, outcome
from small_world import counted, mesh_of, placed
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._utils import ExplicitRedistributionContext
from torch.distributed.tensor.experimental import implicit_replication
from torch.nn import functional

aten = torch.ops.aten

Scene = Callable[[DeviceMesh], Any]


def rows(mesh: DeviceMesh, *shape: int) -> DTensor:
    return placed(mesh, counted(*shape), Shard(0))


def whole(mesh: DeviceMesh, *shape: int) -> DTensor:
    return placed(mesh, counted(*shape), Replicate())


def program(x: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
    hidden = torch.relu(x @ weight)
    total = (hidden + 1.0).sum(0)
    return [hidden, total, total * total, hidden.view(-1, 2, 2), hidden.t()]


def fakes(mesh: DeviceMesh) -> list[Any]:
    with FakeTensorMode():
        local = [torch.empty(2, 8), torch.empty(8, 4)]
        fake = program(placed(mesh, local[0], Shard(0)), placed(mesh, local[1], Replicate()))
    shown = [(tensor.placements, tensor.shape, tensor.stride()) for tensor in fake]
    return [shown, [type(tensor._local_tensor) for tensor in fake]]


def under_a_default_device(mesh: DeviceMesh) -> list[torch.Tensor]:
    x, weight = rows(mesh, 2, 8), whole(mesh, 8, 4)
    with torch.device("meta"):
        return program(x, weight)


def gradient_modes(mesh: DeviceMesh) -> list[torch.Tensor]:
    made = []
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        x, weight = rows(mesh, 2, 8).requires_grad_(), whole(mesh, 8, 4)
        with mode():
            made += program(x, weight)
        made += program(x, weight)
    return made


def a_forward_gradient(mesh: DeviceMesh) -> DTensor:
    with forward_ad.dual_level():
        local = forward_ad.make_dual(counted(2, 8), counted(2, 8))
        return placed(mesh, local, Shard(0))


def random_numbers(mesh: DeviceMesh) -> list[torch.Tensor]:
    torch.manual_seed(0)
    x = rows(mesh, 2, 8)
    noise = torch.zeros_like(x)
    return [
        torch.multinomial(x, 3), aten.rrelu_with_noise(-x, noise, 0.1, 0.3, True), torch.rand(3)
    ]  # fmt: skip


def a_reduction_under_way(mesh: DeviceMesh) -> list[torch.Tensor]:
    part = placed(mesh, counted(2, 8), Partial())
    waited = part.redistribute(placements=[Replicate()], async_op=True)
    return [torch.relu(waited), waited @ waited.t()]


def storages_of_views(mesh: DeviceMesh) -> list[bool]:
    x = rows(mesh, 2, 8)
    views = (x.t(), x.view(-1, 2, 4), x.detach(), x.unsqueeze(0), x.clone(), x.view(-1))
    return [view.untyped_storage()._cdata == x.untyped_storage()._cdata for view in views]


def forbidden_and_implicit_redistribution(mesh: DeviceMesh) -> list[Any]:
    made: list[Any] = []
    x = placed(mesh_of(2, 2), counted(2, 8), Shard(0), Shard(0))
    column = placed(x.device_mesh, counted(4, 4), Replicate(), Shard(0))
    for context in (ExplicitRedistributionContext, implicit_replication):
        for operation in (lambda: x @ column, lambda: x + torch.ones(8, 8), lambda: x @ column):
            try:
                with context():
                    made.append(operation().placements)
            except RuntimeError as error:
                made.append(str(error)[:14])  # the rest names the op as torch came to it
    return made


def a_rank_outside_of_the_mesh(mesh: DeviceMesh) -> list[torch.Tensor]:
    rest, empty = DeviceMesh("cpu", [1, 2, 3]), torch.empty(0)
    x = placed(rest, empty, Shard(0), shape=torch.Size((6, 8)), stride=(8, 1))
    weight = placed(rest, empty, Replicate(), shape=torch.Size((8, 4)), stride=(4, 1))
    return [made for _ in range(2) for made in program(x, weight)[:3]]


def a_vocabulary_parallel_embedding(mesh: DeviceMesh) -> list[Any]:
    table = placed(mesh, counted(2, 4), Shard(0)).requires_grad_()
    embedded = functional.embedding(whole(mesh, 1, 2).long(), table)
    # A mask is a buffer of its own, and its values are made up.
    made = embedded.redistribute(mesh, [Replicate()])
    return [str(embedded.placements), made.placements, tuple(made.shape), made.stride()]


def sizes_of_equal_value_and_other_type(mesh: DeviceMesh) -> list[Any]:
    local, made = torch.ones(2, 4), []
    for _ in range(3):  # one is seen, one is kept, one comes from the table
        given = placed(mesh, local, Shard(0), shape=(8, 4), stride=(4, 1))
        made += [given, placed(mesh, local, Shard(0))]
    return made


def placements_of_equal_value_and_other_type(mesh: DeviceMesh) -> list[str]:
    x = rows(mesh, 2, 4)
    return [str(torch.linalg.vector_norm(x, order).placements) for order in 3 * [2, 2.0]]


def specs_with_the_same_hash(mesh: DeviceMesh) -> list[Any]:
    made = []
    for local, placement in (
        (counted(2, 8), Shard(0)),
        (counted(8, 2), Shard(1)),
        (counted(2, 8), Replicate()),
        (counted(2, 8), Partial()),
        (counted(2, 8).half(), Shard(0)),
    ):
        x = placed(mesh, local, placement)
        x._spec._hash = 7
        made += [torch.relu(x), x + 1, x + x, x.t(), x.view(x.shape), x.sum(0)]
    return made


def changed_in_place(x: DTensor) -> DTensor:
    """Return a tensor, with its spec changed to that of its local tensor, replicated."""
    x._spec.placements = (Replicate(),)
    x._spec.tensor_meta = x._spec.tensor_meta._replace(shape=x._local_tensor.shape)
    return x


def a_spec_changed_in_place(mesh: DeviceMesh) -> list[Any]:
    x, kept = rows(mesh, 2, 8), rows(mesh, 2, 8)
    made = torch.relu(x)
    # Not relu again: the changed spec is a key of torch's cache, which may find it by chance.
    x = changed_in_place(x)
    return [made, torch.tanh(x), x @ whole(mesh, 8, 4), torch.relu(kept), rows(mesh, 2, 8)]


def equal_specs_of_which_one_is_changed_in_place(mesh: DeviceMesh) -> list[Any]:
    tensors = [rows(mesh, 2, 8) for _ in range(4)]
    made = [torch.relu(tensor) for tensor in tensors]
    changed_in_place(tensors[-1])
    return [*made, *tensors, *map(torch.relu, tensors)]


def equal_meshes_that_are_not_the_same(mesh: DeviceMesh) -> list[Any]:
    other = DeviceMesh("cpu", [0, 1, 2, 3])
    made = program(rows(other, 2, 8), whole(other, 8, 4))
    return [[tensor.to_local(), tensor.placements] for tensor in made]


def given_sizes(mesh: DeviceMesh) -> list[Any]:
    made = []
    for context, given in product(
        (torch.no_grad, torch.inference_mode),
        (
            {"shape": torch.Size((7, 6)), "stride": (6, 1)},
            {"shape": torch.Size((8, 6))},  # torch wants both
            {"stride": (6, 1)},
            {"shape": [8, 6], "stride": [6, 1]},  # have no hash
        ),
    ):
        with context():
            made.append(outcome(lambda given=given: placed(mesh, counted(2, 6), Shard(0), **given)))
    return [*made, outcome(lambda: placed(mesh, counted(2, 6), Shard(5)))]


def gradients_of_another_type(mesh: DeviceMesh) -> list[Any]:
    local = torch.ones(4, 6, dtype=torch.bfloat16, requires_grad=True)
    kinds = [Shard(0), Shard(1)]
    moved = placed(mesh_of(2, 2), local, *kinds).redistribute(
        placements=kinds, forward_dtype=torch.float32, backward_dtype=torch.float16
    )
    return [moved.dtype, *torch.autograd.grad(moved.sum(), local)]


def a_row_gathered_from_columns(mesh: DeviceMesh) -> DTensor:
    """Return a tensor whose local part is no view, though no element changes its place."""
    return placed(mesh, counted(1, 1).bool(), Shard(1)).redistribute(placements=[Replicate()])


SCENES: tuple[Scene, ...] = (
    a_row_gathered_from_columns,
    fakes,
    under_a_default_device,
    gradient_modes,
    lambda mesh: torch.linalg.svd(rows(mesh, 2, 8)),  # has no strategy
    random_numbers,
    a_reduction_under_way,
    storages_of_views,
    forbidden_and_implicit_redistribution,
    a_rank_outside_of_the_mesh,
    a_vocabulary_parallel_embedding,
    sizes_of_equal_value_and_other_type,
    placements_of_equal_value_and_other_type,
    specs_with_the_same_hash,
    a_spec_changed_in_place,
    equal_specs_of_which_one_is_changed_in_place,
    equal_meshes_that_are_not_the_same,
    given_sizes,
    gradients_of_another_type,
)


def sizes_that_do_not_fit(mesh: DeviceMesh) -> DTensor:
    """Add 20 rows and 17 rows, whose parts on this rank have the same size."""
    y = placed(mesh, counted(5, 8), Shard(0), shape=torch.Size((17, 8)), stride=(8, 1))
    return rows(mesh, 5, 8) + y


REFUSED: tuple[Scene, ...] = (
    sizes_that_do_not_fit,
    a_forward_gradient,
    lambda mesh: rows(mesh, 2, 8) + torch.ones(8, 8),
    lambda mesh: rows(mesh, 2, 8) + placed(mesh_of(2, 2), counted(4, 4), Shard(0), Shard(1)),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scene", [*SCENES, *REFUSED])
def test_a_scene_is_as_in_torch(scene, mesh):
    """A scene has torch's results, warnings and errors, again and again."""

    def run() -> Any:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            made = scene(mesh)
        return [made, {str(warning.message).partition(" (")[0] for warning in warned}]

    has_failed = tuple in map(type, is_torchs(run))
    assert has_failed is (scene in REFUSED)


@pytest.mark.parametrize("again", [False, True])
def test_gradients_of_redistributions_lie_as_in_torch(again):
    """First and second gradients of any redistribution have torch's placements and strides."""
    mesh = mesh_of(2, 2)
    kinds, wanted = (Shard(0), Shard(1), Replicate(), Partial()), (Shard(0), Shard(1), Replicate())

    def gradients(before: Any, after: Any) -> list[Any]:
        local = torch.arange(24.0).view(4, 6).requires_grad_()
        tensor = placed(mesh, local, *before)
        moved = tensor.redistribute(mesh, after)
        (grad,) = torch.autograd.grad((moved * moved).sum(), tensor, create_graph=again)
        made = [grad]
        if again:
            made += torch.autograd.grad(grad.sum(), local)
        return [[each.shape, each.stride(), each.requires_grad, each.dtype] for each in made]

    every = list(product(product(kinds, repeat=2), product(wanted, repeat=2)))
    for before, after in every[::7]:  # with all that a mesh dimension may do
        is_torchs(lambda pair=(before, after): gradients(*pair), 2)
