"""A report on several machines compares times only within each machine."""

from made_up_results import family_lines, results_of

from reports.family.data import families
from reports.family.tables import cells_table, problems_table


def lines_of_two_machines():
    """Return lines of ten sizes; the five larger ones are from a machine ten times as fast."""
    lines = family_lines(tuple(10 * 2**power for power in range(10)))
    for line in lines:
        fast = line["size"] > 160
        line["environment"] = line["environment"] | {"machine": "fast" if fast else "slow"}
    return lines


def test_growth_is_fitted_within_a_machine(tmp_path):
    results = results_of(tmp_path, lines_of_two_machines())
    (family,) = families(results)
    sweeps = family.sweep_points.groupby("sweep")["size"].unique()
    assert {sweep.rpartition(" on ")[2]: sorted(sizes) for sweep, sizes in sweeps.items()} == {
        "machine fast": [320, 640, 1280, 2560, 5120],
        "machine slow": [10, 20, 40, 80, 160],
    }


def test_tables_with_several_problems_name_the_machine(tmp_path):
    results = results_of(tmp_path, lines_of_two_machines())
    (family,) = families(results)
    for table in (cells_table(family), problems_table(family)):
        place = [column.title for column in table.columns].index("machine")
        assert {row[place].text for row in table.rows} == {"fast", "slow"}


def test_one_machine_gets_no_column(tmp_path):
    results = results_of(tmp_path, family_lines())
    (family,) = families(results)
    for table in (cells_table(family), problems_table(family)):
        assert "machine" not in [column.title for column in table.columns]
    assert results.notes == ()
