"""One file, one collector: it declares its metric families beside the read. See CONTRIBUTING.md."""
