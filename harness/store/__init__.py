"""Results files: append cells, lock a file while measuring, and read it after a kill."""
