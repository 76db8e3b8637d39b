"""Run the command line as `python -m shardbench`."""

from shardbench.cli import main

if __name__ == "__main__":
    main()
