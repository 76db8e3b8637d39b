"""The arguments of torchrec's own `Topology`, and mistakes that they invite."""

import pytest
from torchrec.distributed.planner.types import CollectiveType, Topology

from harness.model.errors import UsageError
from harness.topologies.traps import find_traps
from planners.embedding.importing.topology_arguments import TOPOLOGY


def traps(text: str):
    return find_traps(TOPOLOGY.read(text.encode("utf-8", "surrogateescape"), "bad.json"))


NVL72 = '{"gpu": "GB200", "world_size": %d, "local_world_size": 4, "pod_size": 18, "hbm_cap": 197283282944, "hbm_mem_bw": 8e9, "hbm_to_ddr_mem_bw": 225e6, "intra_host_bw": 9e8, "inter_host_bw": 5e7}'  # noqa: E501


def test_pod_size_is_the_trap_and_nothing_else():
    (finding,) = traps(NVL72 % 72)
    assert (finding.column, finding.write) == ("pod_size", "local_world_size=72, without pod_size")
    (finding,) = traps(NVL72 % 64)
    assert "more than the world of 64" in finding.wrong
    assert finding.write == "local_world_size=64, without pod_size"


def test_what_is_left_out_or_wrong_is_told_by_torchrecs_names():
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
        ('{"world_size": -1}', "at `$.world_size`"),
        ('{"hbm_cap": true}', "got `bool` - at `$.hbm_cap`"),
        ("[" * 10**5, "must hold a JSON object"),
        ("\udcff", "must hold a JSON object"),
    ],
)
def test_what_is_no_object_of_arguments_is_refused(text: str, said: str):
    with pytest.raises(UsageError) as refused:
        traps(text)
    assert said in str(refused.value)
