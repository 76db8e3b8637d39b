"""Topology files and presets: what they say is read, and anything else refused in a sentence."""

import csv
import io

import pytest
from hypothesis import given, strategies as st

from harness.model.errors import UsageError
from harness.topologies.lookup import data_text, find_topology, presets, read_topologies

BANDWIDTHS = ("intra_host_bw", "inter_host_bw", "hbm_bw", "hbm_to_ddr_bw")
REQUIRED = ("name", "gpus_per_host", "hbm_bytes", "intra_host_bw", "hbm_bw", "hbm_to_ddr_bw")
MINE = {
    "name": "mine",
    "gpus_per_host": "8",
    "hosts_per_nvlink_domain": "1",
    "hbm_bytes": "85000000000",
    "ddr_bytes": "270000000000",
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
def test_an_impossible_field_is_refused(field: str, text: str, sentence: str):
    """The sentence names the row, the field and what to write."""
    said = refusal(as_csv({**MINE, "name": "first"}, {**MINE, field: text}))
    assert said.startswith("mine.csv, row 2 ")
    assert f": {field} " in said
    assert sentence in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (as_csv(MINE).replace("hbm_bw", "hbm_bytes"), "mine.csv: a column is there twice."),
        ("", "mine.csv: no topology is listed."),
        ("gpu,hbm_bytes\nH100,1\n", "mine.csv, row 1 (no name): name is missing."),
        (f"{as_csv(MINE)[:-2]},1,2\r\n", "line 2: more fields than columns."),
    ],
)
def test_what_is_no_topology_file_is_refused(text: str, sentence: str):
    """Columns and fields must fit each other."""
    assert sentence in refusal(text)


def test_comments_blank_fields_and_more_columns_are_accepted(tmp_path):
    """Optional values may be missing."""
    path = tmp_path / "mine.csv"
    other = dict.fromkeys(("ddr_bytes", "inter_host_bw", "hosts_per_nvlink_domain"), "")
    other |= {"remark": "cheap", "intra_host_bw_nccl": "370000000"}
    path.write_text(f"# a comment\n{as_csv(MINE | other)},,,\n# another\n", "utf-8-sig")
    topology = find_topology(str(path), 16)
    assert (topology.name, topology.gpus, topology.hbm_bw) == ("mine", 16, 3.35e9)
    assert (topology.ddr_bytes, topology.inter_host_bw) == (None, None)
    assert (topology.hosts_per_nvlink_domain, topology.confidence) == (1, "not stated")


def test_one_of_several_is_named(tmp_path):
    """FILE.csv#NAME is one row of a file."""
    path = tmp_path / "two.csv"
    path.write_text(as_csv(MINE, {**MINE, "name": "yours", "hbm_bw": "8e9"}))
    assert find_topology(f"{path}#yours", 8).hbm_bw == 8e9
    for name, said in (
        (f"{path}", "names 2 topologies; write .*#NAME for one of them"),
        (f"{path}#mime", "did you mean mine?"),
        ("dgx_h10", r"^Unknown topology 'dgx_h10'; did you mean .*dgx_h100"),
    ):
        with pytest.raises(UsageError, match=said):
            find_topology(name, 8)


@given(st.sampled_from(sorted(presets())), st.integers(-8, 600))
def test_gpus_fill_up_to_one_domain_or_whole_ones(name: str, gpus: int):
    """Other numbers of GPUs are refused."""
    size = presets()[name].domain_size
    if 1 <= gpus <= size or (gpus > 0 and gpus % size == 0):
        sized = find_topology(name, gpus)
        assert sized.gpus_in_domain * sized.domains == sized.gpus == gpus
        assert sized.gpus_in_domain == min(gpus, size)
    else:
        with pytest.raises(UsageError, match=f"not {gpus}"):
            find_topology(name, gpus)
