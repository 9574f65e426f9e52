"""HTTP: the page for people, the exposition for scrapers, health and JSON for programs; read-only."""
