"""The clients of a scenario: publishers, readers and samplers, in processes of their own."""
