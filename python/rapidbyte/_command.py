"""The command ``rapidbyte``."""

import signal
import sys

from . import _engine


def main() -> None:
    # The command handles signals itself. Python's handler would wait until it has ended.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_engine.main(sys.argv))


if __name__ == "__main__":
    main()
