"""The file of cells: appended to, locked while measured into, resumed after a kill."""
