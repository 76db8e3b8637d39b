"""Scenes at the edges of DTensor's dispatch end under `accelerate()` as they end in torch."""

import copy
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from outcomes import is_torchs
from small_world import counted, mesh_of, operands, placed, program
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._utils import ExplicitRedistributionContext
from torch.distributed.tensor.experimental import implicit_replication
from torch.nn import functional

pytestmark = pytest.mark.filterwarnings("ignore")

aten = torch.ops.aten


def rows(mesh: DeviceMesh, *shape: int) -> DTensor:
    return placed(mesh, counted(*shape), Shard(0))


def whole(mesh: DeviceMesh, *shape: int) -> DTensor:
    return placed(mesh, counted(*shape), Replicate())


# Arguments


def with_forward_gradient(x: DTensor) -> DTensor:
    with forward_ad.dual_level():
        local = forward_ad.make_dual(x.to_local(), x.to_local())
        return placed(x.device_mesh, local, Shard(0))


FORMS: dict[str, Callable[[DTensor, DTensor], Any]] = {
    "out=": lambda x, y: torch.add(x, y, out=torch.empty_like(x)),
    "keyword arguments": lambda x, y: [torch.add(x, y, alpha=2), x + y, torch.add(x, y, alpha=3)],
    "inputs that are moved": lambda x, y: [
        x + whole(x.device_mesh, 8, 8),
        x @ y.t(),
        torch.addmm(whole(x.device_mesh, 8), x.t(), y),
        torch.cat([x, placed(x.device_mesh, counted(8, 2), Shard(1))], 1),
        torch.linalg.vector_norm(torch.stack([x.norm(), y.norm(), x.norm()])),
    ],
    "a plain tensor of one element": lambda x, y: x * torch.full((1,), 2.0),  # warned of
    "a plain tensor of many elements": lambda x, y: x + torch.ones(8, 8),  # refused
    "a copy": lambda x, y: [copy.deepcopy(x) + 1, x.clone() + 1, torch.empty_like(x).copy_(x)],
    "a reduction under way": lambda x, y: [
        waited := placed(x.device_mesh, x.to_local(), Partial()).redistribute(
            placements=[Replicate()], async_op=True
        ),
        torch.relu(waited),
        waited @ waited.t(),
    ][1:],
    "a forward gradient": lambda x, y: with_forward_gradient(x),
    "random numbers": lambda x, y: [
        torch.manual_seed(0) and None,
        torch.multinomial(x, 3),
        aten.rrelu_with_noise(-x, torch.zeros_like(x), 0.1, 0.3, True),
        torch.rand(3),
    ],
    "an op without a strategy": lambda x, y: torch.linalg.svd(x),
    "two meshes": lambda x, y: x + placed(mesh_of(2, 2), counted(4, 4), Shard(0), Shard(1)),
    "storages of views": lambda x, y: [
        view.untyped_storage()._cdata == x.untyped_storage()._cdata
        for view in (x.t(), x.view(-1, 2, 4), x.detach(), x.unsqueeze(0), x.clone(), x.view(-1))
    ],
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_arguments_have_torchs_results(form, mesh):
    """Results, errors and warnings are torch's for any form of arguments."""

    def run() -> Any:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            made = FORMS[form](rows(mesh, 2, 8), placed(mesh, counted(2, 8) - 3, Shard(0)))
        return [made, {str(warning.message).partition(" (")[0] for warning in warned}]

    is_torchs(run)


# Scenes: a function of a mesh, and the shape of the mesh

SCENES: dict[str, tuple[Callable[[DeviceMesh], Any], tuple[int, ...]]] = {}


def scene(*shape: int) -> Callable[..., Any]:
    def added(run: Callable[[DeviceMesh], Any]) -> Any:
        SCENES[run.__name__] = run, shape
        return run

    return added


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_is_as_in_torch(name):
    """A scene that succeeds in torch has the same results, again and again."""
    run, shape = SCENES[name]
    mesh = mesh_of(*shape)
    assert tuple not in map(type, is_torchs(lambda: run(mesh)))  # an error


@scene(4)
def fakes(mesh: DeviceMesh) -> list[Any]:
    made = program(*operands(mesh))
    with FakeTensorMode():
        local = [torch.empty(2, 8), torch.empty(8, 4)]
        fake = program(placed(mesh, local[0], Shard(0)), placed(mesh, local[1], Replicate()))
    shown = [(tensor.placements, tensor.shape, tensor.stride()) for tensor in fake]
    return [made, shown, [type(tensor._local_tensor) for tensor in fake]]


@scene(4)
def default_device(mesh: DeviceMesh) -> list[torch.Tensor]:
    x, weight = operands(mesh)
    with torch.device("meta"):
        return program(x, weight)


@scene(4)
def gradient_modes(mesh: DeviceMesh) -> list[torch.Tensor]:
    made = []
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        x, weight = operands(mesh)
        x.requires_grad_()
        with mode():
            made += program(x, weight)
        made += program(x, weight)
    return made


@scene(2, 2)
def forbidden_and_implicit_redistribution(mesh: DeviceMesh) -> list[Any]:
    x = placed(mesh, counted(2, 8), Shard(0), Shard(0))
    column = placed(mesh, counted(4, 4), Replicate(), Shard(0))
    made: list[Any] = [(x @ column).placements]
    for context in (ExplicitRedistributionContext, implicit_replication):
        for operation in (lambda: x @ column, lambda: x + torch.ones(8, 8), lambda: x @ column):
            try:
                with context():
                    made.append(operation().placements)
            except RuntimeError as error:
                made.append(str(error)[:14])  # the rest names the op as torch came to it
    return made


@scene(4)
def rank_outside_of_the_mesh(mesh: DeviceMesh) -> list[torch.Tensor]:
    rest, empty = DeviceMesh("cpu", [1, 2, 3]), torch.empty(0)
    x = placed(rest, empty, Shard(0), shape=torch.Size((6, 8)), stride=(8, 1))
    weight = placed(rest, empty, Replicate(), shape=torch.Size((8, 4)), stride=(4, 1))
    return [made for _ in range(2) for made in program(x, weight)[:3]]


@scene(4)
def vocabulary_parallel_embedding(mesh: DeviceMesh) -> list[Any]:
    table = placed(mesh, counted(2, 4), Shard(0)).requires_grad_()
    embedded = functional.embedding(whole(mesh, 1, 2).long(), table)
    # A mask is a buffer of its own, and its values are made up.
    made = embedded.redistribute(mesh, [Replicate()])
    return [str(embedded.placements), made.placements, tuple(made.shape), made.stride()]


@scene(4)
def sizes_of_equal_value_and_other_type(mesh: DeviceMesh) -> list[Any]:
    local, made = torch.ones(2, 4), []
    for _ in range(3):  # one is seen, one is kept, one comes from the table
        given = placed(mesh, local, Shard(0), shape=(8, 4), stride=(4, 1))
        made += [given, placed(mesh, local, Shard(0))]
    return made


@scene(4)
def placements_of_equal_value_and_other_type(mesh: DeviceMesh) -> list[str]:
    x = rows(mesh, 2, 4)
    return [str(torch.linalg.vector_norm(x, order).placements) for order in 3 * [2, 2.0]]


@scene(4)
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


@scene(4)
def a_spec_changed_in_place(mesh: DeviceMesh) -> list[Any]:
    x, weight = operands(mesh)
    kept = operands(mesh)[0]
    made = [torch.relu(x)]
    x._spec.placements = (Replicate(),)
    x._spec.tensor_meta = x._spec.tensor_meta._replace(shape=torch.Size((2, 8)))
    return [*made, torch.relu(x), x @ weight, kept, operands(mesh)[0]]


@scene(4)
def equal_meshes_that_are_not_the_same(mesh: DeviceMesh) -> list[Any]:
    made = program(*operands(DeviceMesh("cpu", [0, 1, 2, 3])))
    return [[tensor.to_local(), tensor.placements] for tensor in made]


@scene(2, 2)
def gradients_of_another_type(mesh: DeviceMesh) -> list[Any]:
    local = torch.ones(4, 6, dtype=torch.bfloat16, requires_grad=True)
    moved = placed(mesh, local, Shard(0), Shard(1)).redistribute(
        mesh, [Shard(0), Shard(1)], forward_dtype=torch.float32, backward_dtype=torch.float16
    )
    return [moved.dtype, *torch.autograd.grad(moved.sum(), local)]


@pytest.mark.parametrize("shape", [(16, 9), (17, 8)], ids=str)
def test_sizes_that_do_not_fit_are_refused_in_torchs_words(shape, mesh):
    """Global sizes decide: 17 rows and 20 rows have parts of equal size on this rank."""

    def run() -> list[DTensor]:
        x = rows(mesh, 5, 8)
        local = counted(-(-shape[0] // 4), shape[1])
        y = placed(mesh, local, Shard(0), shape=torch.Size(shape), stride=(shape[1], 1))
        return [x + x, x + y]

    is_torchs(run)


# Local tensors and gradients

GIVEN: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a size": {"shape": torch.Size((7, 6)), "stride": (6, 1)},
    "a size without strides": {"shape": torch.Size((8, 6))},
    "strides without a size": {"stride": (6, 1)},
    "lists": {"shape": [8, 6], "stride": [6, 1]},  # which have no hash
}


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_from_local_has_torchs_results_and_errors(context):
    """Any local tensor, placement, given size and mode of autograd gives torch's DTensor."""
    mesh = mesh_of(2, 2)
    values = torch.arange(48.0)
    locals_ = [
        values[: torch.Size(shape).numel()].view(shape) for shape in ((4, 6), (0, 6), (4, 1))
    ]
    locals_ += [values.view(4, 12)[:, ::2], values[:6].expand(4, 6), values[:24].view(6, 4).t()]
    locals_ += [values[:24].view(4, 6).long(), torch.nn.Parameter(values[:24].view(4, 6))]
    wanted = (Shard(0), Shard(5)), (Shard(1), Shard(0)), (Replicate(), Partial()), (Shard(0),) * 2

    def of_local(local: torch.Tensor, placements: Any, options: Any) -> Any:
        made = placed(mesh, local, *placements, **options)
        return [made, made._local_tensor.data_ptr() == local.data_ptr()]

    with context():
        for local, placements in product(locals_, wanted):
            is_torchs(lambda given=(local, placements): of_local(*given, {}), 2)
        for options in GIVEN.values():
            is_torchs(lambda options=options: of_local(locals_[0], wanted[-1], options), 2)


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
