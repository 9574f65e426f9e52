"""Renders samples once per tick; a scrape only hands out bytes."""
