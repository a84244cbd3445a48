"""``python -m nsysacct``."""

from nsysacct.cli import main

if __name__ == "__main__":
    main()
