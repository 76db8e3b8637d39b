"""The plan file that the first release wrote."""

import json
from pathlib import Path


def decisions(options):
    return {
        option.name: (
            option.sharding_type,
            option.compute_kernel,
            [(shard.size, shard.offset, shard.rank) for shard in option.shards],
        )
        for option in options
    }


def said_again(path, change):
    """Write a change of the document that a file holds back into it."""
    said = json.loads(path.read_text())
    change(said)
    path.write_text(json.dumps(said))


GOLDEN = Path(__file__).parent / "data" / "plan_version_1.json"  # as the first release wrote it


def first(said, sharding_type, kernel="fused"):
    return next(
        table
        for table in said["tables"]
        if (table["sharding_type"], table["compute_kernel"]) == (sharding_type, kernel)
    )


def as_said(said):
    """Return the decisions that a document says, as `decisions` does those of options."""
    return {
        table["name"]: (
            table["sharding_type"],
            table["compute_kernel"],
            [(shard["size"], shard["offset"], shard["rank"]) for shard in table["shards"]],
        )
        for table in said["tables"]
    }


SAID = json.loads(GOLDEN.read_text())
