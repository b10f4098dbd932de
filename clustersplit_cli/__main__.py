"""Run the command line with `python -m clustersplit_cli`."""

from clustersplit_cli.cli import main

if __name__ == "__main__":
    main()
