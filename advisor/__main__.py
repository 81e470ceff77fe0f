"""The command `advisor`, also `python -m advisor`; Ctrl-C ends it in silence, also while its modules are imported."""

import sys

try:
    from advisor.cli import main
except KeyboardInterrupt:
    sys.exit(130)  # as shells say it

if __name__ == "__main__":
    main()
