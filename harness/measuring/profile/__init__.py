"""Where the time of calls goes, and how two variants differ in that."""
