"""``python -m weir``: runs the program ``weir`` even where the environment's scripts are not on the path."""

from __future__ import annotations

from weir.cli.main import main

if __name__ == "__main__":
    main()
