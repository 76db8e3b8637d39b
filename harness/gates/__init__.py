"""What is expected of cells, and how they are judged by it."""
