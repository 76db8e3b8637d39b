"""Reads the arguments of torchrec's `Topology` from JSON; warns of misleading arguments."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec

from harness.contract import LibraryTopology, TopologyRow, TopologyTrap, UsageError

_Figure = int | float | str | None
# Torchrec's names of a topology file's columns; their values are not parsed here.
_FIGURES = {
    "gpus_per_host": "local_world_size",
    "hosts_per_nvlink_domain": "pod_size",
    "hbm_bytes": "hbm_cap",
    "ddr_bytes": "ddr_cap",
    "intra_host_bw": "intra_host_bw",
    "inter_host_bw": "inter_host_bw",
    "hbm_bw": "hbm_mem_bw",
    "hbm_to_ddr_bw": "hbm_to_ddr_mem_bw",
}
_Arguments = msgspec.defstruct(
    "_Arguments",
    [
        ("name", str, "torchrec"),
        ("gpu", str, ""),
        ("gpus", Annotated[int, msgspec.Meta(ge=0)] | None, None),
        *((column, _Figure, None) for column in _FIGURES),
    ],
    rename={"gpus": "world_size", **_FIGURES},
)


def _read(content: bytes, file: str) -> TopologyRow:
    try:
        arguments = msgspec.json.decode(content.decode("utf-8-sig"), type=_Arguments, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"{file} must hold a JSON object of torchrec's arguments: {error}."
        ) from None
    values = msgspec.structs.asdict(arguments)
    gpus = values.pop("gpus")
    texts = {column: str(value) for column, value in values.items() if value is not None}
    return TopologyRow(file, texts, TOPOLOGY, gpus)


def _traps(row: TopologyRow, values: Mapping[str, Any], gpus: int | None) -> Iterator[TopologyTrap]:
    if "gpus_per_host" not in row.texts and (row.gpus or 1) > 1:
        wrong = f"is left out, so torchrec assumes all {row.gpus} ranks are in one host"
        yield TopologyTrap("gpus_per_host", wrong, "the GPUs that NVLink joins")
    local, hosts = values.get("gpus_per_host"), values.get("hosts_per_nvlink_domain", 1)
    if local and hosts == 1 and gpus and local > gpus:
        wrong = f"local_world_size={local} is larger than the world of {gpus}"
        yield TopologyTrap("gpus_per_host", wrong, f"local_world_size={gpus}")
    if not local or hosts == 1:
        return
    domain = local * hosts
    wrong = (
        f"pod_size changes no bandwidth in torchrec 1.9.2: with local_world_size={local}, all "
        f"exchanges of more than {local} ranks are planned at inter_host_bw, though NVLink joins "
        f"{domain}"
    )
    if gpus and domain > gpus:
        wrong += (
            f"; and the {domain} GPUs of a domain are more than the world of {gpus}, so "
            "table-row-wise sharding finds no place at all"
        )
    fits = f"local_world_size={min(domain, gpus or domain)}, without pod_size"
    yield TopologyTrap("hosts_per_nvlink_domain", wrong, fits)


TOPOLOGY = LibraryTopology(
    library="torchrec",
    read=_read,
    traps=_traps,
    arguments={"name": "name", "gpu": "gpu", "gpus": "world_size", **_FIGURES},
    # planner/constants.py of torchrec 1.9.2: the memory of one machine and the NVLink of another,
    # both directions together.
    defaults={
        "hbm_bytes": "32 GiB",
        "intra_host_bw": "600 GiB/s",
        "inter_host_bw": "12.5 GiB/s",
        "hbm_bw": "897 GiB/s",
        "hbm_to_ddr_bw": "32 GiB/s",
    },
)
