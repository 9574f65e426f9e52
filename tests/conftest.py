"""What holds for every test."""

import os

import pytest


def pytest_collection_modifyitems(items):
    """Leave out what takes minutes where someone is waiting."""
    if os.environ.get("COLDAISLE_SKIP_LONG"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="COLDAISLE_SKIP_LONG is set"))
