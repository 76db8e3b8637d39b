"""The arguments of torchrec's own `Topology`, and mistakes that they invite."""

import pytest
from hostile import refusal
from torchrec.distributed.planner.types import CollectiveType, Topology

from harness.topologies.traps import find_traps
from planners.embedding.importing.topology_arguments import TOPOLOGY


def traps(text: str):
    return find_traps(TOPOLOGY.read(text.encode("utf-8", "surrogateescape"), "bad.json"))


NVL72 = '{"gpu": "GB200", "world_size": %d, "local_world_size": 4, "pod_size": 18, "hbm_cap": 197283282944, "hbm_mem_bw": 8e9, "hbm_to_ddr_mem_bw": 225e6, "intra_host_bw": 9e8, "inter_host_bw": 5e7}'  # noqa: E501


def test_traps_are_told_by_torchrecs_names():
    """`pod_size`, arguments that are left out, and figures in the wrong unit are traps."""
    for ranks in (72, 64):
        (trap,) = traps(NVL72 % ranks)
        write = f"local_world_size={ranks}, without pod_size"
        assert (trap.column, trap.write) == ("pod_size", write)
    assert "more than the world of 64" in trap.wrong
    assert {trap.column for trap in traps('{"world_size": 16}')} == {
        *("local_world_size", "hbm_cap", "hbm_mem_bw", "hbm_to_ddr_mem_bw", "intra_host_bw")
    }
    (trap,) = (trap for trap in traps('{"hbm_mem_bw": 3350}') if "left out" not in trap.wrong)
    assert (trap.column, trap.write) == ("hbm_mem_bw", "3350000000 if GB/s were meant")


def test_torchrec_itself_does_as_is_said_here():
    """In the real Topology, `pod_size` changes no bandwidth; a larger `local_world_size` does."""

    def all_to_all(**hosts: int) -> float:
        links = {"intra_host_bw": 900e6, "inter_host_bw": 50e6}
        topology = Topology(world_size=72, compute_device="cuda", **links, **hosts)
        return topology.comms_bandwidths.get_bw(
            topology.local_world_size, topology.world_size, CollectiveType.ALL_TO_ALL
        )

    assert all_to_all(local_world_size=4) == all_to_all(local_world_size=4, pod_size=18) == 50e6
    assert all_to_all(local_world_size=72) == 900e6
    default = Topology(world_size=16, compute_device="cuda")
    assert default.local_world_size == 16
    assert default.devices[0].storage.hbm == 32 * 2**30
    assert default.comms_bandwidths.intra_host_bw == 600 * 2**30 / 1000
    assert default.comms_bandwidths.inter_host_bw == 12.5 * 2**30 / 1000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "bad.json must hold a JSON object of torchrec's arguments: "),
        ('{"hbm_cap": true}', "got `bool` - at `$.hbm_cap`"),
        ("[" * 10**5, "must hold a JSON object"),
        ("\udcff", "must hold a JSON object"),
    ],
)
def test_what_is_no_object_of_arguments_is_refused(text: str, said: str):
    """Whatever a file contains, it is read or refused in one sentence."""
    assert said in refusal(lambda: traps(text))
