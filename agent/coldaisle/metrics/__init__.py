"""What is exported and what it is called: pure data and rendering, no reading of anything."""
