import csv
import io
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.model.errors import UsageError
from harness.model.topology import Topology
from harness.topologies.csv_files import data_text, read_topologies
from harness.topologies.lookup import find_topology, presets

BANDWIDTHS = ("intra_host_bw", "intra_host_bw_nccl", "inter_host_bw", "hbm_bw", "hbm_to_ddr_bw")
REQUIRED = ("name", "gpus_per_host", "hbm_bytes", "intra_host_bw", "hbm_bw", "hbm_to_ddr_bw")

MINE = {
    "name": "mine",
    "gpus_per_host": "8",
    "hosts_per_nvlink_domain": "1",
    "hbm_bytes": "85000000000",
    "ddr_bytes": "270000000000",
    "intra_host_bw": "450000000",
    "intra_host_bw_nccl": "370000000",
    "inter_host_bw": "50000000",
    "hbm_bw": "3350000000",
    "hbm_to_ddr_bw": "31500000",
}


def as_csv(*rows: dict[str, str]) -> str:
    text = io.StringIO()
    columns = list(dict.fromkeys(column for row in rows for column in row))
    writer = csv.DictWriter(text, columns, restval="")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def preset_rows() -> dict[str, dict[str, str]]:
    text = data_text("topologies.csv")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {row["name"]: row for row in csv.DictReader(lines)}


@pytest.fixture
def file(tmp_path: Path):
    def write(text: str | bytes, name: str = "machines.csv") -> str:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return write


class TestPresets:
    def test_there_are_24_and_each_is_read_as_it_is_written(self):
        rows = preset_rows()
        assert len(rows) == 24
        assert presets().keys() == rows.keys()
        for name, row in rows.items():
            topology = presets()[name]
            for field in ("gpus_per_host", "hosts_per_nvlink_domain", "hbm_bytes", *BANDWIDTHS):
                value = getattr(topology, field)
                assert (value is None) == (row[field] == ""), (name, field)
                assert value is None or value == float(row[field]), (name, field)

    def test_each_keeps_its_source_and_confidence(self):
        for topology in presets().values():
            assert topology.source not in ("", "not stated")
            assert topology.confidence.split()[0] in ("high", "medium", "low")
            assert topology.gpu
            assert topology.hbm_basis

    @pytest.mark.parametrize("name", sorted(presets()))
    def test_each_can_be_sized(self, name: str):
        preset = presets()[name]
        sized = find_topology(name, 2 * preset.domain_size)
        assert (sized.name, sized.gpus, sized.domains) == (name, 2 * preset.domain_size, 2)
        assert presets()[name].gpus == 0

    def test_an_unknown_one_is_refused_with_a_suggestion(self):
        with pytest.raises(
            UsageError, match=r"^Unknown topology 'dgx_h10'; did you mean .*dgx_h100"
        ):
            find_topology("dgx_h10", 8)
        with pytest.raises(UsageError, match=r"^Unknown topology 'zzz'; known are: .*dgx_h100, "):
            find_topology("zzz", 8)

    @given(
        st.sampled_from(sorted(presets())),
        st.sampled_from(BANDWIDTHS),
        st.sampled_from([(1e3, "bytes per second"), (1e-6, "GB/s")]),
    )
    def test_no_bandwidth_passes_in_another_unit(
        self, name: str, field: str, unit: tuple[float, str]
    ):
        row = preset_rows()[name]
        factor, wrong = unit
        if row[field]:
            row[field] = repr(float(row[field]) * factor)
            with pytest.raises(UsageError) as refused:
                read_topologies(as_csv(row), "mine.csv")
            assert str(refused.value).startswith(f"mine.csv, row 1 ({name}): {field} must be bytes")
            assert f" if {wrong} were meant." in str(refused.value)


class TestUnits:
    @pytest.mark.parametrize(
        ("field", "text", "sentence"),
        [
            (
                "hbm_bw",
                "3350000000000",
                "must be bytes per millisecond, from 10,000,000 to 40,000,000,000, not "
                "'3350000000000'; write 3350000000 if bytes per second were meant.",
            ),
            (
                "inter_host_bw",
                "50",
                "must be bytes per millisecond, from 100,000 to 400,000,000, not '50'; "
                "write 50000000 if GB/s were meant.",
            ),
            (
                "hbm_bytes",
                "80",
                "must be a whole number of bytes per GPU, from 1,073,741,824 to "
                "4,398,046,511,104, not '80'; write 85899345920 if GiB were meant.",
            ),
            ("hbm_bytes", "8e10.5", "must be a whole number of bytes per GPU, "),
            *(
                ("intra_host_bw", text, "must be bytes per millisecond, from ")
                for text in ("0", "NaN", "inf", "fast", "450 GB/s", "null", "1e400")
            ),
            ("gpus_per_host", "7.5", "must be a whole number, from 1 to 4,096, not '7.5'."),
            ("hosts_per_nvlink_domain", "-2", "must be a whole number, from 1 to 4,096, "),
            ("hosts_per_nvlink_domain", "1000", "times gpus_per_host must be at most 4,096."),
        ],
    )
    def test_an_impossible_figure_is_refused(self, file, field: str, text: str, sentence: str):
        path = file(as_csv({**MINE, "name": "first"}, {**MINE, field: text}))
        with pytest.raises(UsageError) as refused:
            find_topology(path, 8)
        assert str(refused.value).startswith(f"{path}, row 2 (mine): {field} {sentence}")

    @pytest.mark.parametrize("field", REQUIRED)
    def test_a_missing_column_is_refused(self, file, field: str):
        path = file(as_csv({key: value for key, value in MINE.items() if key != field}))
        with pytest.raises(UsageError) as refused:
            find_topology(path, 8)
        assert str(refused.value) == (
            f"{path}: column '{field}' is missing; needed are {', '.join(REQUIRED)}."
        )

    @pytest.mark.parametrize("field", REQUIRED)
    @pytest.mark.parametrize("blank", ["", "  "])
    def test_a_missing_field_is_refused(self, file, field: str, blank: str):
        path = file(as_csv({**MINE, field: blank}))
        with pytest.raises(UsageError, match=rf"row 1 \(.*\): {field} is missing\.$"):
            find_topology(path, 8)

    def test_what_is_not_required_may_be_blank(self, file):
        path = file(as_csv({field: MINE[field] for field in REQUIRED}))
        found = find_topology(path, 8)
        assert (found.ddr_bytes, found.inter_host_bw, found.intra_host_bw_nccl) == (None,) * 3
        assert found.hosts_per_nvlink_domain == 1
        assert (found.confidence, found.source) == ("not stated", "not stated")


class TestSizes:
    @pytest.mark.parametrize(
        ("hosts", "gpus", "in_domain", "domains"),
        [(1, 1, 1, 1), (1, 8, 8, 1), (1, 24, 8, 3), (9, 5, 5, 1), (9, 72, 72, 1), (9, 144, 72, 2)],
    )
    def test_up_to_one_domain_or_whole_ones(self, hosts, gpus, in_domain, domains):
        rows = as_csv({**MINE, "hosts_per_nvlink_domain": str(hosts)})
        sized = read_topologies(rows, "mine.csv")["mine"].sized(gpus)
        assert (sized.gpus, sized.gpus_in_domain, sized.domains) == (gpus, in_domain, domains)

    @pytest.mark.parametrize("gpus", [9, 12, 17])
    def test_parts_of_a_domain_are_refused(self, gpus: int):
        with pytest.raises(UsageError) as refused:
            find_topology("dgx_h100", gpus)
        assert str(refused.value) == (
            "Topology 'dgx_h100' joins 8 GPUs at a time: --gpus must be at most 8 or a multiple "
            f"of it, not {gpus}."
        )

    @pytest.mark.parametrize("gpus", [0, -8])
    def test_no_gpus_are_refused(self, gpus: int):
        sentence = f"^Topology 'dgx_h100' needs at least 1 GPU, not {gpus}.$"
        with pytest.raises(UsageError, match=sentence):
            find_topology("dgx_h100", gpus)

    @given(st.sampled_from(sorted(presets())), st.integers(1, 600))
    def test_domains_hold_all_gpus(self, name: str, gpus: int):
        try:
            sized = find_topology(name, gpus)
        except UsageError:
            assert gpus % presets()[name].domain_size
            return
        assert sized.gpus_in_domain * sized.domains == sized.gpus == gpus


class TestFiles:
    def test_a_file_with_one_topology_needs_no_name(self, file):
        found = find_topology(file(as_csv(MINE)), 16)
        assert isinstance(found, Topology)
        assert (found.name, found.gpus, found.hbm_bw) == ("mine", 16, 3.35e9)

    def test_one_of_several_is_named(self, file):
        path = file(as_csv(MINE, {**MINE, "name": "yours", "hbm_bw": "8e9"}))
        assert find_topology(f"{path}#yours", 8).hbm_bw == 8e9
        with pytest.raises(UsageError) as refused:
            find_topology(path, 8)
        assert str(refused.value) == (
            f"{path} lists 2 topologies; write {path}#NAME for one of them."
        )

    def test_an_unknown_name_in_a_file_is_refused_with_a_suggestion(self, file):
        path = file(as_csv(MINE))
        with pytest.raises(UsageError) as refused:
            find_topology(f"{path}#mime", 8)
        assert str(refused.value) == f"Unknown topology in {path} 'mime'; did you mean mine?"

    @pytest.mark.parametrize("name", ["my/machine", "my:machine", "my@machine"])
    def test_a_name_that_would_make_an_ambiguous_problem_id_is_refused(self, file, name: str):
        path = file(as_csv({**MINE, "name": name}))
        with pytest.raises(UsageError, match="name"):
            find_topology(path, 8)

    def test_a_file_with_a_header_only_is_refused(self, file):
        path = file(",".join(MINE) + "\n")
        with pytest.raises(UsageError) as refused:
            find_topology(path, 8)
        assert str(refused.value) == f"{path}: no topology is listed."

    def test_comments_and_more_columns_are_left_out(self, file):
        path = file("# a comment\n" + as_csv({**MINE, "remark": "cheap"}) + "# another\n")
        assert find_topology(path, 8).name == "mine"


def test_a_topology_says_all_that_its_file_said():
    # Guards `as_csv` above: a field added to Topology must be thought of here.
    assert {field.name for field in fields(Topology)} == {
        *MINE,
        "gpu",
        "hbm_basis",
        "coefficients",
        "confidence",
        "source",
        "gpus",
    }
