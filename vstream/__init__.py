"""Multi-region virtual streams on NATS JetStream."""

__version__ = "0.1.0"
