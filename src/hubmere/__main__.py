"""`python -m hubmere` is the command `hubmere`."""

from hubmere.cli.entry import main

if __name__ == "__main__":
    main()
