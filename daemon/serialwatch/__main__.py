"""`python -m serialwatch` is `serialwatch`."""

from serialwatch.cli.main import main

if __name__ == "__main__":
    main()
