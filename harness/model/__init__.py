"""The typed records of a result: ids, cells, settings, topologies."""
