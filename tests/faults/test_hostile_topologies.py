"""Topology files: any content is read, or refused in one sentence before it can do harm."""

import csv
import io
from functools import partial

import pytest
from hostile import NUMBERS, TEXTS, read_or_refused
from hypothesis import given, settings, strategies as st

from harness.topologies.lookup import find_topology

COLUMNS = {
    "name": "mine",
    "gpus_per_host": "8",
    "hosts_per_nvlink_domain": "1",
    "hbm_bytes": "80000000000",
    "ddr_bytes": "1000000000000",
    "intra_host_bw": "450000000",
    "intra_host_bw_nccl": "360000000",
    "inter_host_bw": "50000000",
    "hbm_bw": "3350000000",
    "hbm_to_ddr_bw": "31500000",
    "gpu": "H100",
    "source": "a data sheet",
}


def written(columns: dict[str, str], *rows: dict[str, str]) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(columns))
    writer.writeheader()
    writer.writerows([columns, *rows])
    return text.getvalue()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "mine.csv"


def read(path, content: bytes):
    path.write_bytes(content)
    return find_topology(str(path), 8)


def test_the_file_that_is_changed_here_can_be_read(path):
    assert read(path, written(COLUMNS).encode()).gpus_per_host == 8


@settings(max_examples=15)
@given(content=st.binary(max_size=100) | st.text('namegpus_,"\n\r\x0b\x1c\u2028#', max_size=80))
def test_any_content_is_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    data = content if isinstance(content, bytes) else content.encode()
    read_or_refused(lambda: read(path, data), str(path))


@settings(max_examples=15)
@given(
    changed=st.dictionaries(
        st.sampled_from([*COLUMNS, "another", ""]),
        st.sampled_from([*TEXTS, *NUMBERS, "", "0", "1", "1e300", "5e-324", "4e9", "1e18"]),
        min_size=1,
        max_size=3,
    ),
    dropped=st.sets(st.sampled_from(list(COLUMNS)), max_size=1),
    gpus=st.sampled_from([1, 8, 64, 10**6, 10**400]),
)
def test_any_cell_is_read_or_refused(tmp_path_factory, changed, dropped, gpus):
    columns = {key: value for key, value in (COLUMNS | changed).items() if key not in dropped}
    path = tmp_path_factory.getbasetemp() / "cells.csv"
    path.write_bytes(written(columns).encode(errors="surrogatepass"))
    found = read_or_refused(lambda: find_topology(str(path), gpus))
    if found is not None:
        assert found.gpus == gpus
        assert 1 <= found.domain_size <= 4096
        for ndim in (1, 2, 3, 4):
            read_or_refused(partial(found.mesh_shape, ndim))


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_other_line_ends_and_a_mark_do_not_matter(path, ending, mark):
    text = mark + written(COLUMNS).replace("\r\n", ending)
    assert read(path, text.encode()).source == "a data sheet"


def test_text_in_quotes_may_have_lines_of_its_own(path):
    text = written(COLUMNS | {"source": "one\nline,\u2028and another"})
    assert read(path, text.encode()).source == "one\nline,\u2028and another"
