import asyncio

import pytest
import uvloop


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(config, item):
    """Run every asynchronous test of the web layer on both loops: the agent runs on uvloop, and on asyncio without."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
