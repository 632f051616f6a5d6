"""`python -m steersman`: the command line, where scripts are not installed."""

from steersman.cli.entry import main

if __name__ == "__main__":
    main()
