"""The entry point: one command, one exit code, and every error as one line."""

import os
import sys
from argparse import Namespace
from importlib import import_module

from coldaisle.cli import arguments
from coldaisle.domain.errors import ColdaisleError, ConfigError

FAILED = 1
PERMISSION = 6
INTERRUPTED = 130

# By name, as importing the classes would import pydantic before it is known whether anything needs it.
_EXIT_CODES = {"ConfigError": 3, "BindError": 4, "NoAgentError": 5, "AccessError": PERMISSION, "PermissionDenied": 6}

# Command to module and function; a module is imported only when its command is given.
_COMMANDS = {
    "run": ("coldaisle.cli.sampling", "run"),
    "collect": ("coldaisle.cli.sampling", "collect"),
    "replay": ("coldaisle.cli.sampling", "replay"),
    "check-config": ("coldaisle.cli.checking", "check_config"),
    "release": ("coldaisle.cli.controlling", "release"),
    "resume": ("coldaisle.cli.controlling", "resume"),
    "status": ("coldaisle.cli.controlling", "status"),
    "record": ("coldaisle.cli.controlling", "record"),
}


def main(argv: list[str] | None = None) -> int:  # noqa: PLR0911  one exit code per kind of end
    """Run a command and return its exit code (docs/cli.md)."""
    try:
        parsed = arguments.parse(argv)
        code = _dispatch(parsed)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough (`| head`). Python flushes standard output once more at exit: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ConfigError as error:
        for problem in error.problems:
            _say(problem)
        return _EXIT_CODES["ConfigError"]
    except ColdaisleError as error:
        _say(f"{error}; {error.remedy}" if error.remedy else str(error))
        return _exit_code(error)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _say(f"{where}{error.strerror or error}")
        return PERMISSION if isinstance(error, PermissionError) else FAILED
    except Exception as error:
        if os.environ.get("COLDAISLE_TRACEBACK"):
            raise
        _say(f"{type(error).__name__}: {error}; this is a bug: report it with COLDAISLE_TRACEBACK=1 set")
        return FAILED
    return code


def _dispatch(parsed: Namespace) -> int:
    module, function = _COMMANDS[parsed.command]
    return int(getattr(import_module(module), function)(parsed))


def _exit_code(error: ColdaisleError) -> int:
    for kind in type(error).__mro__:
        if kind.__name__ in _EXIT_CODES:
            return _EXIT_CODES[kind.__name__]
    return FAILED


def _say(message: str) -> None:
    sys.stderr.write(f"coldaisle: error: {' '.join(message.split())}\n")


if __name__ == "__main__":
    sys.exit(main())
