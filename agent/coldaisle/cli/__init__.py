"""The command line: thin, quick to start, clear when something is wrong. See docs/cli.md."""
