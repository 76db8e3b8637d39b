"""Muon on sharded matrices: each rank orthogonalises the matrices that it owns."""
