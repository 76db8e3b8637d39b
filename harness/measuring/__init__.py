"""One problem measured: checked calls, interleaved turns, ratios and verdicts."""
