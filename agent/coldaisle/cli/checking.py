"""`check-config`: all problems of a file, without starting anything."""

import sys
from argparse import Namespace
from pathlib import Path

from coldaisle.config import web_file
from coldaisle.config.loader import load
from coldaisle.domain.errors import ConfigError


def check_config(parsed: Namespace) -> int:
    """Check the configuration, and the web configuration that it or the command line names."""
    problems: list[str] = []
    web_config: Path | None = parsed.web_config_file
    try:
        config = load(parsed.config)
    except ConfigError as error:
        problems += error.problems
    else:
        web_config = web_config or config.web.config_file
    if web_config is not None:
        try:
            web_file.load(web_config)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    for path in filter(None, (parsed.config, web_config)):
        sys.stdout.write(f"{path}: ok\n")
    return 0
