"""What every region holds, compared: tables of messages, and what they say. The only package that imports pyspark."""
