"""Write a topology that describes what already runs on servers."""
