"""The programs that variants run, on real DTensors in a world of fake ranks."""
