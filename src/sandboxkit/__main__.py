"""
`python -m sandboxkit` is `sandboxkit`.
"""

from sandboxkit.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
