"""`python -m ukjax`, the same as `ukjax`."""

from ._cli._commands import main

if __name__ == "__main__":
    main()
