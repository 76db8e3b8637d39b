"""Why a plan is as it is, for `shardbench explain`."""
