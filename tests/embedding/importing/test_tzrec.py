"""Tables of TorchEasyRec's configs, as the importer reads them."""

import json
from pathlib import Path

import pytest
from imported import feature, imported, refusal, tables_of

from planners.embedding.tables.files import Table, parse_tables

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"

SIZED = "embedding_dim: 8 num_buckets: 5"


def named(fields: str, name: str = "a", kind: str = "id_feature") -> str:
    return feature(kind, f"feature_name: '{name}' {fields}")


def one_table(source, kind: str, fields: str) -> Table:
    text = named(f"embedding_dim: 8 {fields}", kind=kind)
    (table,) = tables_of(source("my.config", text))
    return table


@pytest.mark.parametrize(
    ("fields", "rows"),
    [
        ("num_buckets: 7", 7),
        ("hash_bucket_size: 0x10", 16),
        ("hash_bucket_size: 9 num_buckets: 7", 9),
        ("num_buckets: 7 zch { zch_size: 40 lfu {} }", 40),
        ("dynamicemb { max_capacity: 50 }", 50),
        ('vocab_list: ["x", "y"]', 4),
        ('vocab_list: "x" vocab_list: "y" vocab_list: "z"', 5),
        ('vocab_list: ["x", "y"] default_bucketize_value: 0', 2),
        ('vocab_dict [{ key: "x" value: 2 }, { key: "y" value: 8 }]', 9),
        ('vocab_dict { key: "x" value: 3 }', 4),
    ],
)
@pytest.mark.parametrize("kind", ["id_feature", "combo_feature", "sequence_id_feature"])
def test_rows_are_counted_as_torcheasyrec_counts_them(source, kind, fields, rows):
    assert one_table(source, kind, fields).rows == rows


@pytest.mark.parametrize(
    "kind", ["raw_feature", "lookup_feature", "match_feature", "sequence_expr_feature"]
)
def test_numbers_have_a_table_where_they_are_cut_into_ranges(source, kind):
    table = one_table(source, kind, "boundaries: [0.1, 1e3, -5]")
    assert (table.name, table.rows) == ("a_emb", 4)
    said = refusal(source("my.config", named("embedding_dim: 8", kind=kind)))
    assert "features of numbers, which look up no table: a" in said


@pytest.mark.parametrize(
    ("kind", "fields", "factor", "is_reported"),
    [
        ("id_feature", "", 1.0, True),
        ("id_feature", "value_dim: 3", 3.0, False),
        ("raw_feature", "boundaries: 1", 1.0, False),
        ("sequence_id_feature", "sequence_length: 50", 50.0, True),
        ("sequence_id_feature", "sequence_length: 50 value_dim: 2", 100.0, True),
        ("sequence_id_feature", "", 1.0, True),
    ],
)
def test_pooling_factors_are_stated_or_reported(source, kind, fields, factor, is_reported):
    sizes = "" if "boundaries" in fields else "num_buckets: 5"
    found = imported(source("my.config", named(f"embedding_dim: 8 {sizes} {fields}", kind=kind)))
    assert parse_tables(found.content, "t.csv")[0].pooling_factors == (factor,)
    assert bool(found.assumed) is is_reported


def test_an_assumed_pooling_factor_is_for_what_the_config_leaves_open(source):
    text = named(SIZED) + named(f"{SIZED} value_dim: 2", "b")
    tables = tables_of(source("my.config", text), assumed={"pooling_factor": "7.5"})
    assert [table.pooling_factors for table in tables] == [(7.5,), (2.0,)]


def test_features_share_the_table_of_an_embedding_name_also_across(source):
    text = "".join(
        named(f"embedding_name: '{table}' {SIZED}", name)
        for name, table in (("a", "b_emb"), ("b", "a_emb"), ("c", "b_emb"))
    )
    tables = tables_of(source("my.config", text))
    assert [(table.name, table.features) for table in tables] == [("b_emb", 2), ("a_emb", 1)]


def test_features_that_share_a_table_but_not_its_size_are_refused(source):
    text = "\n".join(
        named(f"embedding_name: 't' {sized}", name)
        for name, sized in (("a", SIZED), ("b", SIZED.replace("5", "6")))
    )
    said = refusal(source("my.config", text))
    assert "line 3: features 'a' and 'b' share table 't', but the rows of one is 5" in said


def test_only_features_in_a_group_have_a_table_and_wide_groups_one_of_their_own(source):
    features = "".join(named("num_buckets: 5 embedding_dim: 16", name) for name in "abc")
    groups = """
    model_config {
        feature_groups { group_name: "deep" feature_names: ["a", "b"] group_type: DEEP }
        feature_groups { group_name: "wide" feature_names: "a" group_type: WIDE }
        feature_groups { group_name: "own" feature_names: "b" embedding_name_suffix: "own" }
        WIDTH
    }
    """
    for width, dim in (
        ("", 4),
        ("wide_and_deep { wide_embedding_dim: 8 }", 8),
        ("xdeepfm { }", 16),  # upstream's default of that model
    ):
        found = imported(source("my.config", features + groups.replace("WIDTH", width)))
        tables = parse_tables(found.content, "t.csv")
        assert [(table.name, table.dim) for table in tables] == [
            ("a_emb", 16), ("a_emb_wide", dim), ("b_emb", 16), ("b_emb_own", 16)
        ]  # fmt: skip
        assert any("no feature group" in text and text.endswith(": c") for text in found.left_out)


def test_the_example_is_imported_with_all_notes():
    found = imported(str(EXAMPLES / "model.config"))
    tables = {table.name: table for table in parse_tables(found.content, "t.csv")}
    # TorchEasyRec keeps a copy of a table for each kind of lookup.
    pooled, sequence = tables["article_emb"], tables["article_emb_2"]
    assert (pooled.pooling_factors, pooled.lookup) == ((1.0,), "pooled")
    assert (sequence.pooling_factors, sequence.lookup) == ((1.0, 50.0), "sequence")
    assert tables["seen__shop_emb"].rows == 500_000
    assert tables["seen__shop_emb"].lookup == "sequence"
    assert tables["tags_emb"].dtype == "fp16"
    left_out = " ".join(found.left_out)
    for word in ("rating, price_ratio", "embedding_constraints", "zch"):
        assert word in left_out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no feature_configs"),
        ("model_dir: 'x'", "has no feature_configs"),
        ("feature_configs { }", "must hold one feature"),
        ("feature_configs: 5", "line 1: '5': Expected"),
        (feature("id_feature", "num_buckets: 5"), "feature_name is missing"),
        (named("num_buckets: 5"), "no embedding_dim"),
        (named("embedding_dim: 8"), "features without a size"),
        (named("vocab_file: 'v'"), "only in their vocab_file"),
        (named("zch { }"), "zch has no zch_size"),
        (named("", kind="new_feature"), "unknown kind (new_feature)"),
        (named("embedding_dim: -8 num_buckets: 5"), "out of range: -8"),
        (named("embedding_dim: 8 num_buckets: 1e9"), "'1e9'"),
        (named("embedding_dim: 8 num_buckets: 'x'"), "'x'"),
        (named(f"embedding_dim: 8 num_buckets: {10**13}"), "rows must be"),
        (named(f"embedding_dim: 8 num_buckets: {10**20}"), "out of range"),
        (named(SIZED) * 2, "there already, in line 1"),
        (named(f"{SIZED} data_type: 'INT8'"), "data type INT8"),
        (named("stub_type: true"), "stub_type"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_in_one_sentence(source, text, said):
    assert said in refusal(source("my.config", text))


def test_rows_and_dim_can_be_assumed_for_features_without(source):
    text = named("") + named("", "b", "raw_feature")
    found = imported(source("my.config", text), assumed={"rows": "1e6", "dim": "32"})
    (table,) = parse_tables(found.content, "t.csv")
    assert (table.name, table.rows, table.dim) == ("a_emb", 1_000_000, 32)
    assert any("1,000,000 rows" in text for text in found.assumed)


def test_the_json_form_gives_the_same(source):
    a = {"featureName": "a", "embeddingDim": 8, "vocabDict": {"x": "2", "y": "6"}}
    b = {"featureName": "b", "embeddingDim": 8, "numBuckets": "5"}
    sequence = {"sequenceName": "s", "sequenceLength": 9, "features": [{"idFeature": b}]}
    held = {"featureConfigs": [{"idFeature": a}, {"sequenceFeature": sequence}]}
    text = """
    feature_configs { id_feature { feature_name: "a" embedding_dim: 8
        vocab_dict [{key: "x" value: 2}, {key: "y" value: 6}] } }
    feature_configs { sequence_feature { sequence_name: "s" sequence_length: 9
        features { id_feature { feature_name: "b" num_buckets: 5 embedding_dim: 8 } } } }
    """
    sequences = Table("s__b_emb", 5, 8, (9.0,), lookup="sequence")
    expected = (Table("a_emb", 7, 8, (1.0,)), sequences)
    assert tables_of(source("my.json", json.dumps(held))) == expected
    assert tables_of(source("my.config", text)) == expected


@pytest.mark.parametrize("held", [5, [[1]], "x"])
def test_any_json_is_read_or_refused(source, held):
    refusal(source("my.json", json.dumps({"feature_configs": held})))
