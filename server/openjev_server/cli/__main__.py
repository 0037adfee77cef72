"""`python -m openjev_server.cli`."""

from openjev_server.cli import main

if __name__ == "__main__":
    main()
