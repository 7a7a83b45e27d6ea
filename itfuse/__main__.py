"""`python -m itfuse` is the console script."""

from itfuse.cli import main

if __name__ == "__main__":
    main()
