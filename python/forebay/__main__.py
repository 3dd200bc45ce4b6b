"""The command: `forebay` where the package is installed, and `python -m forebay`. It becomes the program that the package carries."""

import os
import signal
import sys
from typing import NoReturn

from forebay.loader import SERVER


def main() -> NoReturn:
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python; a program that it becomes would inherit that
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execv(SERVER, ["forebay", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"forebay: {SERVER}: {error.strerror}: expected the program that the package carries; install it again with pip")


if __name__ == "__main__":
    main()
