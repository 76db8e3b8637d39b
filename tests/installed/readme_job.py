"""Run README's snippets as a job does, with the installed shardbench.

    python -I readme_job.py README

The snippets get the names that README leaves to the reader: a model of two tables, a topology of 16
GPUs, and a step on DTensors. TorchRec's planner must make the same plan.
"""

import json
import re
import sys
from importlib import import_module, metadata
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from shardbench import capture

TABLES = {"user": 5_000_000, "item": 20_000}


def names_of_the_reader() -> dict[str, object]:
    """Return the objects that the snippets use."""
    tables = [
        EmbeddingBagConfig(name=name, num_embeddings=rows, embedding_dim=64, feature_names=[name])
        for name, rows in TABLES.items()
    ]
    mesh = init_device_mesh("cpu", (1,))
    weight = nn.Parameter(distribute_tensor(torch.ones(8, 4), mesh, [Shard(0)]))
    optimizer = torch.optim.AdamW([weight])

    def train() -> None:
        (weight * weight).sum().backward()
        optimizer.step()

    topology = Topology(world_size=16, local_world_size=8, compute_device="cuda")
    constraints = {name: ParameterConstraints(pooling_factors=[4.0]) for name in TABLES}
    return {
        "topology": topology,
        "constraints": constraints,
        "model": EmbeddingBagCollection(device=torch.device("meta"), tables=tables),
        "sharders": [EmbeddingBagCollectionSharder()],
        "planner": EmbeddingShardingPlanner(topology=topology, constraints=constraints),
        "optimizer": optimizer,
        "train": train,
        "weight": weight,
    }


def main(readme: str) -> None:
    """Run the snippets in order and check what each leaves."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    text = Path(readme).read_text(encoding="utf-8")
    names = names_of_the_reader()
    plans = []
    for snippet in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        exec(snippet, names)
        plans.append(str(names.pop("plan", "")))
    ours, _ = plans
    with capture("embedding", "problem.json", hash_names=True):
        upstream = str(names["planner"].collective_plan(names["model"], names["sharders"]))
    weight = names["weight"]
    assert ours == upstream
    assert all(name in ours for name in TABLES)
    # In this mode no search of TorchRec can answer for kernels that cannot be compiled.
    best = names["Planner"](
        topology=names["topology"], constraints=names["constraints"], mode="best-plan"
    )
    best.collective_plan(names["model"], names["sharders"])
    assert best.bound_ms > 0
    assert isinstance(weight, DTensor)
    assert bool((weight.to_local() < 1).all())
    captured = json.loads(Path("problem.json").read_text(encoding="utf-8"))
    assert captured["shardbench"]["family"] == "embedding"
    for package in ("harness", "planners", "reports", "shardbench"):
        assert Path(import_module(package).__path__[0]).is_relative_to(sys.prefix)
    versions = {name: metadata.version(name) for name in ("shardbench", "torch", "torchrec")}
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
