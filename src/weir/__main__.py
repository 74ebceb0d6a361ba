"""``python -m weir``: the program ``weir``, also where the scripts of the environment are not found."""

from __future__ import annotations

from weir.cli.main import main

if __name__ == "__main__":
    main()
