"""The service manager's protocol."""
