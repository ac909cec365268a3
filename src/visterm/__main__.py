"""`python -m visterm` is the `visterm` program."""

from visterm.cli import main

if __name__ == "__main__":
    main()
