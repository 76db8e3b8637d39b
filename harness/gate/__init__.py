"""Judge measured cells by a file of expectations."""
