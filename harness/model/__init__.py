"""The typed parts of a result: ids, cells, settings, machines."""
