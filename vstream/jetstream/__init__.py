"""Transport: everything that speaks to NATS servers. The only package that imports nats."""
