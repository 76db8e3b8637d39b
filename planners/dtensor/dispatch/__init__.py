"""Ways to dispatch an op on DTensors, installed in torch's place until left."""
