"""Ways to dispatch an op on DTensors, each put in torch's place and taken away again."""
