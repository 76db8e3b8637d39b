"""Likely mistakes in topologies: each is found, and a correct topology gets no warning."""

import pytest
from hypothesis import given, strategies as st

from harness.contract.abilities import TopologyTrap
from harness.model.errors import UsageError
from harness.topologies.lookup import data_text, presets, read_rows, read_topologies
from harness.topologies.traps import find_traps

H100 = {
    "name": "mine",
    "gpu": "H100 SXM",
    "gpus_per_host": "8",
    "hosts_per_nvlink_domain": "1",
    "hbm_bytes": "85020639232",
    "ddr_bytes": "274877906944",
    "intra_host_bw": "450000000",
    "inter_host_bw": "50000000",
    "hbm_bw": "3350000000",
    "hbm_to_ddr_bw": "31500000",
}
GB200 = H100 | {
    "gpu": "NVIDIA GB200",
    "gpus_per_host": "4",
    "hosts_per_nvlink_domain": "18",
    "hbm_bytes": "197283282944",
    "intra_host_bw": "900000000",
    "hbm_bw": "8000000000",
    "hbm_to_ddr_bw": "225000000",
}

MI300X = H100 | {
    "gpu": "MI300X",
    "intra_host_bw": "448000000",
    "hbm_bw": "5300000000",
    "hbm_bytes": "206141652992",
}


def as_csv(row: dict[str, str]) -> str:
    return ",".join(row) + "\n" + ",".join(row.values()) + "\n"


def traps_of(row: dict[str, str], gpus: int | None = None) -> list[TopologyTrap]:
    return find_traps(read_rows(as_csv(row), "mine.csv")[0], gpus)


def test_correct_rows_and_unknown_gpus_have_no_traps():
    """A GPU without a data sheet has nothing to compare with."""
    for row, gpus in ((H100, 64), (GB200, 144), (MI300X, 8)):
        assert traps_of(row, gpus) == []
    assert traps_of(H100 | {"gpu": "Z1000", "intra_host_bw": "900000000"}) == []


def test_presets_say_only_what_is_true():
    """Presets have no trap, except that some have no network."""
    rows = read_rows(data_text("topologies.csv"), "topologies.csv")
    assert [row.texts["name"] for row in rows] == list(presets())
    assert all(find_traps(row) == [] for row in rows)
    told = {row.texts["name"] for row in rows if find_traps(row, 144)}
    assert told == {name for name, preset in presets().items() if preset.inter_host_bw is None}


@pytest.mark.parametrize(
    ("row", "changes", "wrong", "write"),
    [
        (H100, "intra_host_bw=900000000", "is 2 times what the data sheet", "450000000"),
        (H100, "intra_host_bw=483183821", "GiB were perhaps taken for GB", "450000000"),
        (H100, "intra_host_bw=450", "not '450'", "450000000 if GB/s were meant"),
        (H100, "hbm_bw=3597073715", "GiB were perhaps taken for GB", "3350000000"),
        (H100, "hbm_bw=2000000000", "2,000 GB/s is 0.597 times", "3350000000"),
        (H100, "hbm_bw=3.35", "not '3.35'", "3350000000 if TB/s were meant"),
        (H100, "hbm_bw=", "is missing", "3350000000, by the data sheet"),
        (H100, "hbm_bytes=81559", "not '81559'", "85520809984 if MiB were meant"),
        (H100, "hbm_bytes=85899345920", "as a program sees it", "85020639232"),
        (GB200, "hbm_bytes=180000000000", "0.912 times", "197283282944"),
        (H100, "ddr_bytes=2199023255552", "16.0 TiB in a host", "274877906944"),
        (H100, "inter_host_bw=400000000", "looks like Gbit/s", "50000000"),
        (
            H100,
            "inter_host_bw=90000000 intra_host_bw=31500000",
            "is more than 31.5",
            "a GPU's share",
        ),
        (H100, "hbm_to_ddr_bw=63000000", "by half of the link", "31500000"),
        (H100, "gpus_per_host=16", "at most 8", "8"),
        (H100, "gpus_per_host=many", "must be a whole number", ""),
        (H100, "hosts_per_nvlink_domain=1000", "must be at most 4,096", ""),
        (GB200, "hosts_per_nvlink_domain=1", "a part of an NVL", "18, for a whole rack"),
        (GB200, "hosts_per_nvlink_domain=", "a part of", "18"),
        (GB200, "hosts_per_nvlink_domain=36", "4 x 36 GPUs are more than the 72", "18"),
        (GB200, "gpus_per_host=18 hosts_per_nvlink_domain=4", "at most 4 GB200", "domain=18"),
        (H100, "inter_host_bw= gpus=16", "is not given", "12500000 for 100 Gbit/s"),
        (H100, "gpus_per_host=8 gpus=20", "no whole number of domains of 8", "16 or 24 GPUs"),
        (GB200, "hosts_per_nvlink_domain=18 gpus=64", "larger than the world of 64", "16, the"),
        (MI300X, "intra_host_bw=448000000 gpus=2", "use 1 of each GPU's 7 peers'", "64000000"),
    ],
)
def test_each_trap_is_seen(row, changes, wrong, write):
    """The first column that is changed has the trap."""
    values = dict(change.split("=") for change in changes.split(" "))
    gpus = int(values.pop("gpus", 0)) or None
    (trap,) = traps_of(row | values, gpus)
    assert trap.column == next(iter(values))
    assert wrong in trap.wrong
    assert write in trap.write


cells = st.one_of(
    st.sampled_from(["", " ", "x", "nan", "-1", "0", "1e400", "8.5", "8", "1"]),
    st.floats(1e-3, 1e16).map(lambda value: f"{value:g}"),
    st.integers(1, 10**15).map(str),
)


@given(st.dictionaries(st.sampled_from(sorted(set(H100) - {"name", "gpu"})), cells, max_size=5))
def test_what_the_loader_refuses_is_found_and_nothing_fails(changes: dict[str, str]):
    """Any cells give traps or none."""
    row = H100 | changes
    traps = traps_of(row, 64)
    try:
        read_topologies(as_csv(row), "mine.csv")
    except UsageError:
        assert traps
