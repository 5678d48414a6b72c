"""The links between a lab's regions: their settings, their state and the proxy that shapes them."""
