"""Topology files: what they say is read, anything else refused, and likely mistakes are found."""

import csv
import io

import pytest
from hypothesis import given, strategies as st

from harness.contract.abilities import TopologyTrap
from harness.model.errors import UsageError
from harness.topologies.lookup import data_text, find_topology, presets, read_rows, read_topologies
from harness.topologies.traps import find_traps

BANDWIDTHS = ("intra_host_bw", "inter_host_bw", "hbm_bw", "hbm_to_ddr_bw")
REQUIRED = ("name", "gpus_per_host", "hbm_bytes", "intra_host_bw", "hbm_bw", "hbm_to_ddr_bw")
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
LINES = data_text("topologies.csv").splitlines()
ROWS = {row["name"]: row for row in csv.DictReader(line for line in LINES if line[:1] != "#")}


def as_csv(*rows: dict[str, str]) -> str:
    text = io.StringIO()
    columns = list(dict.fromkeys(column for row in rows for column in row))
    writer = csv.DictWriter(text, columns, restval="")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as refused:
        read_topologies(text, "mine.csv")
    return str(refused.value)


def test_each_preset_is_read_as_it_is_written():
    """Every preset has a source and a GPU."""
    for name, row in ROWS.items():
        preset = presets()[name]
        for field in ("gpus_per_host", "hosts_per_nvlink_domain", "hbm_bytes", *BANDWIDTHS):
            value = getattr(preset, field)
            assert row[field] == "" if value is None else value == float(row[field]), field
        assert preset.source != "not stated"
        assert preset.gpu
        assert preset.hbm_basis


@given(
    st.sampled_from(sorted(ROWS)),
    st.sampled_from(BANDWIDTHS),
    st.sampled_from([(1e3, "bytes per second"), (1e-6, "GB/s")]),
)
def test_no_bandwidth_passes_in_another_unit(name, field, unit):
    """The refusal has the value in the right unit."""
    row, (factor, wrong) = ROWS[name], unit
    if row[field]:
        said = refusal(as_csv(row | {field: repr(float(row[field]) * factor)}))
        assert said.startswith(f"mine.csv, row 1 ({name}): {field} must be bytes")
        assert f" if {wrong} were meant." in said


@pytest.mark.parametrize(
    ("field", "text", "sentence"),
    [
        ("hbm_bw", "3350000000000", "write 3350000000 if bytes per second were meant."),
        ("inter_host_bw", "50", "not '50'; write 50000000 if GB/s were meant."),
        ("hbm_bytes", "80", "not '80'; write 85899345920 if GiB were meant."),
        ("hbm_bytes", "8e10.5", "must be a whole number of bytes per GPU, "),
        ("intra_host_bw", "NaN", "must be bytes per millisecond, from "),
        ("intra_host_bw", "1e400", "must be bytes per millisecond, from "),
        ("gpus_per_host", "7.5", "must be a whole number, from 1 to 4,096, not '7.5'."),
        ("hosts_per_nvlink_domain", "1000", "times gpus_per_host must be at most 4,096."),
        ("name", "my/machine", "name must be without '/'"),
        ("name", "captured", "not 'captured'"),
        *((field, "  ", f"{field} is missing.") for field in REQUIRED),
    ],
)
def test_an_impossible_field_is_refused(field, text, sentence):
    """The sentence names the row, the field and what to write."""
    said = refusal(as_csv({**H100, "name": "first"}, {**H100, field: text}))
    assert said.startswith("mine.csv, row 2 ")
    assert f": {field} " in said
    assert sentence in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (as_csv(H100).replace("hbm_bw", "hbm_bytes"), "mine.csv: a column is there twice."),
        ("", "mine.csv: no topology is listed."),
        ("gpu,hbm_bytes\nH100,1\n", "mine.csv, row 1 (no name): name is missing."),
        (f"{as_csv(H100)[:-2]},1,2\r\n", "line 2: more fields than columns."),
    ],
)
def test_what_is_no_topology_file_is_refused(text, sentence):
    """Columns and fields must fit each other."""
    assert sentence in refusal(text)


def test_comments_blank_fields_and_more_columns_are_accepted(tmp_path):
    """Optional values may be missing."""
    path = tmp_path / "mine.csv"
    other = dict.fromkeys(("ddr_bytes", "inter_host_bw", "hosts_per_nvlink_domain"), "")
    other |= {"remark": "cheap", "intra_host_bw_nccl": "370000000"}
    path.write_text(f"# a comment\n{as_csv(H100 | other)},,,\n# another\n", "utf-8-sig")
    topology = find_topology(str(path), 16)
    assert (topology.name, topology.gpus, topology.hbm_bw) == ("mine", 16, 3.35e9)
    assert (topology.ddr_bytes, topology.inter_host_bw) == (None, None)
    assert (topology.hosts_per_nvlink_domain, topology.confidence) == (1, "not stated")


def test_one_of_several_is_named(tmp_path):
    """FILE.csv#NAME is one row of a file."""
    path = tmp_path / "two.csv"
    path.write_text(as_csv(H100, {**H100, "name": "yours", "hbm_bw": "8e9"}))
    assert find_topology(f"{path}#yours", 8).hbm_bw == 8e9
    for name, said in (
        (f"{path}", "names 2 topologies; write .*#NAME for one of them"),
        (f"{path}#mime", "did you mean mine?"),
        ("dgx_h10", r"^Unknown topology 'dgx_h10'; did you mean .*dgx_h100"),
    ):
        with pytest.raises(UsageError, match=said):
            find_topology(name, 8)


@given(st.sampled_from(sorted(presets())), st.integers(-8, 600))
def test_gpus_fill_up_to_one_domain_or_whole_ones(name, gpus):
    """Other numbers of GPUs are refused."""
    size = presets()[name].domain_size
    if 1 <= gpus <= size or (gpus > 0 and gpus % size == 0):
        sized = find_topology(name, gpus)
        assert sized.gpus_in_domain * sized.domains == sized.gpus == gpus
        assert sized.gpus_in_domain == min(gpus, size)
    else:
        with pytest.raises(UsageError, match=f"not {gpus}"):
            find_topology(name, gpus)


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
def test_what_the_loader_refuses_is_found_and_nothing_fails(changes):
    """Any cells give traps or none."""
    row = H100 | changes
    traps = traps_of(row, 64)
    try:
        read_topologies(as_csv(row), "mine.csv")
    except UsageError:
        assert traps
