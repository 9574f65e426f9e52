"""One YAML file, strict, checkable offline, reloaded as a whole. See docs/configuration.md."""
