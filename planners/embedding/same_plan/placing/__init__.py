"""TorchRec's partitioner, compiled."""
